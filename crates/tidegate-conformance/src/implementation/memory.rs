//! The `tidegate` crate: a keyed limiter, or a gate, on a clock that is set for every request.

use super::in_flight::InFlight;
use super::{DecisionResult, Implementation, Refusal, TakeRequest, Target, no_limit, parsed};
use tidegate::rule::Window;
use tidegate::{Decision, Gate, Limiter, ManualClock, Permit, Timestamp};

/// `tidegate::Limiter`, or `tidegate::Gate` where there is only one key.
#[derive(Debug)]
pub struct Memory {
    clock: ManualClock,
    has_keys: bool,
    limits: Vec<Owner>,
    in_flight: InFlight<Permit<ManualClock>>,
    /// The only key of a gate: the first one of the scenario.
    only_key: Option<String>,
}

#[derive(Debug)]
enum Owner {
    Limiter(Limiter<ManualClock>),
    Gate(Gate<ManualClock>),
}

impl Memory {
    /// Uses keyed limiters.
    pub fn limiters() -> Self {
        Self {
            clock: ManualClock::new(),
            has_keys: true,
            limits: Vec::new(),
            in_flight: InFlight::default(),
            only_key: None,
        }
    }

    /// Uses gates, which have no keys, so that scenarios with several keys are skipped.
    pub fn gates() -> Self {
        Self { has_keys: false, ..Self::limiters() }
    }

    fn at(&mut self, now: Timestamp, on: Target<'_>) -> Result<&Owner, Refusal> {
        self.clock.set(now);
        self.check_key(on.key)?;
        self.limits.get(on.limit).ok_or_else(|| no_limit(on.limit))
    }

    /// Refuses a second key if the limits are gates.
    fn check_key(&mut self, key: &str) -> Result<(), Refusal> {
        let only = self.only_key.get_or_insert_with(|| key.to_owned());
        if self.has_keys || only == key {
            return Ok(());
        }
        Err(Refusal::Unsupported("several keys"))
    }
}

impl Owner {
    fn request(&self, key: &str) -> tidegate::Request<ManualClock> {
        match self {
            Self::Limiter(limiter) => limiter.request(key),
            Self::Gate(gate) => gate.request(),
        }
    }

    fn check(&self, key: &str, cost: u64) -> Decision {
        match self {
            Self::Limiter(limiter) => limiter.check_n(key, cost),
            Self::Gate(gate) => gate.check_n(cost),
        }
    }

    fn is_concurrency(&self) -> bool {
        let rule = match self {
            Self::Limiter(limiter) => limiter.rule(),
            Self::Gate(gate) => gate.rule(),
        };
        rule.is_concurrency()
    }
}

fn within(owner: &Owner, on: Target<'_>, cost: u64, wait_max: tidegate::Span) -> Decision {
    let ask = || owner.request(on.key).cost(cost).within(wait_max.as_duration());
    // Under a rule without waits, `acquire` has nothing to wait for.
    let seen = ask().peek();
    if seen.is_deny() {
        return seen;
    }
    match ask().reserve() {
        Err(denied) => denied.decision,
        Ok(reservation) => {
            let decision = reservation.decision();
            reservation.commit();
            decision
        }
    }
}

impl Implementation for Memory {
    fn begin(&mut self, rules: &[&str], birth: Timestamp) -> Result<(), Refusal> {
        self.clock = ManualClock::at(birth);
        self.limits.clear();
        self.in_flight = InFlight::default();
        self.only_key = None;
        for rule in rules {
            let (rule, clock) = (parsed(rule)?, self.clock.clone());
            self.limits.push(if self.has_keys {
                Owner::Limiter(Limiter::with_clock(rule, clock))
            } else {
                Owner::Gate(Gate::with_clock(rule, clock))
            });
        }
        Ok(())
    }

    fn take(&mut self, now: Timestamp, on: Target<'_>, ask: TakeRequest) -> DecisionResult {
        let limit = self.at(now, on)?;
        if let Some(wait_max) = ask.wait_max {
            return Ok(within(limit, on, ask.cost, wait_max).into());
        }
        if !limit.is_concurrency() {
            return Ok(limit.check(on.key, ask.cost).into());
        }
        match limit.request(on.key).cost(ask.cost).try_acquire() {
            Err(denied) => Ok(denied.decision.into()),
            Ok(permit) => {
                let decision = permit.decision();
                self.in_flight.add(on, ask.cost, permit);
                Ok(decision.into())
            }
        }
    }

    fn take_all(&mut self, now: Timestamp, key: &str, cost: u64) -> DecisionResult {
        self.clock.set(now);
        self.check_key(key)?;
        if self.limits.iter().any(Owner::is_concurrency) {
            return Err(Refusal::Unsupported("holding a permit together with a rate"));
        }
        let asks = self.limits.iter().map(|limit| limit.request(key).cost(cost));
        Ok(tidegate::check_all(asks).decision.into())
    }

    fn peek(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> DecisionResult {
        Ok(self.at(now, on)?.request(on.key).cost(cost).peek().into())
    }

    fn refund(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        match self.at(now, on)? {
            Owner::Limiter(limiter) => limiter.refund(on.key, cost),
            Owner::Gate(gate) => gate.refund(cost),
        }
        Ok(())
    }

    fn release(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        self.at(now, on)?;
        self.in_flight.remove(on, cost).map(drop)
    }

    fn reset(&mut self, now: Timestamp, on: Target<'_>) -> Result<(), Refusal> {
        match self.at(now, on)? {
            Owner::Limiter(limiter) => limiter.reset(on.key),
            Owner::Gate(gate) => gate.reset(),
        }
        Ok(())
    }

    fn change(&mut self, now: Timestamp, limit: usize, rule: &str) -> Result<(), Refusal> {
        self.clock.set(now);
        let rule = parsed(rule)?;
        match self.limits.get(limit).ok_or_else(|| no_limit(limit))? {
            Owner::Limiter(limiter) => limiter.set_rule(rule),
            Owner::Gate(gate) => gate.set_rule(rule),
        }
        Ok(())
    }

    fn window(&mut self, now: Timestamp, on: Target<'_>) -> Result<Option<Window>, Refusal> {
        Ok(match self.at(now, on)? {
            Owner::Limiter(limiter) => limiter.window(on.key),
            Owner::Gate(gate) => gate.window(),
        })
    }
}
