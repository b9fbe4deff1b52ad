//! The `tidegate` crate: a keyed limiter, or a gate, on a clock that is set for every request.

use super::{Implementation, PartialDecision, Refusal, TakeRequest, Target};
use std::collections::VecDeque;
use tidegate::rule::Window;
use tidegate::{Decision, Gate, Limiter, ManualClock, Permit, Rule, Timestamp};

/// `tidegate::Limiter`, or `tidegate::Gate` where there is only one key.
#[derive(Debug)]
pub struct Memory {
    clock: ManualClock,
    has_keys: bool,
    limits: Vec<LimitState>,
    /// The only key of a gate: the first one of the scenario.
    only_key: Option<String>,
}

#[derive(Debug)]
struct LimitState {
    owner: Owner,
    /// Requests in flight, oldest first.
    permits: VecDeque<(String, u64, Permit<ManualClock>)>,
}

#[derive(Debug)]
enum Owner {
    Limiter(Limiter<ManualClock>),
    Gate(Gate<ManualClock>),
}

impl Memory {
    /// Uses keyed limiters.
    pub fn limiters() -> Self {
        Self { clock: ManualClock::new(), has_keys: true, limits: Vec::new(), only_key: None }
    }

    /// Uses gates, which have no keys, so that scenarios with several keys are skipped.
    pub fn gates() -> Self {
        Self { has_keys: false, ..Self::limiters() }
    }

    fn at(&mut self, now: Timestamp, on: Target<'_>) -> Result<&mut LimitState, Refusal> {
        self.clock.set(now);
        self.know(on.key)?;
        let failed = || Refusal::Failed(format!("there is no limit number {}", on.limit));
        self.limits.get_mut(on.limit).ok_or_else(failed)
    }

    fn know(&mut self, key: &str) -> Result<(), Refusal> {
        let only = self.only_key.get_or_insert_with(|| key.to_owned());
        if self.has_keys || only == key {
            return Ok(());
        }
        Err(Refusal::CannotSay("several keys"))
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

fn read(rule: &str) -> Result<Rule, Refusal> {
    rule.parse().map_err(|error: tidegate::RuleError| Refusal::Failed(error.to_string()))
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
        self.only_key = None;
        for rule in rules {
            let (rule, clock) = (read(rule)?, self.clock.clone());
            let owner = if self.has_keys {
                Owner::Limiter(Limiter::with_clock(rule, clock))
            } else {
                Owner::Gate(Gate::with_clock(rule, clock))
            };
            self.limits.push(LimitState { owner, permits: VecDeque::new() });
        }
        Ok(())
    }

    fn take(
        &mut self,
        now: Timestamp,
        on: Target<'_>,
        ask: TakeRequest,
    ) -> Result<PartialDecision, Refusal> {
        let kept = self.at(now, on)?;
        if let Some(wait_max) = ask.wait_max {
            return Ok(within(&kept.owner, on, ask.cost, wait_max).into());
        }
        if !kept.owner.is_concurrency() {
            return Ok(kept.owner.check(on.key, ask.cost).into());
        }
        match kept.owner.request(on.key).cost(ask.cost).try_acquire() {
            Err(denied) => Ok(denied.decision.into()),
            Ok(permit) => {
                let decision = permit.decision();
                if ask.cost > 0 {
                    kept.permits.push_back((on.key.to_owned(), ask.cost, permit));
                }
                Ok(decision.into())
            }
        }
    }

    fn take_all(
        &mut self,
        now: Timestamp,
        key: &str,
        cost: u64,
    ) -> Result<PartialDecision, Refusal> {
        self.clock.set(now);
        self.know(key)?;
        if self.limits.iter().any(|kept| kept.owner.is_concurrency()) {
            return Err(Refusal::CannotSay("holding a permit together with a rate"));
        }
        let asks = self.limits.iter().map(|kept| kept.owner.request(key).cost(cost));
        Ok(tidegate::check_all(asks).decision.into())
    }

    fn peek(
        &mut self,
        now: Timestamp,
        on: Target<'_>,
        cost: u64,
    ) -> Result<PartialDecision, Refusal> {
        Ok(self.at(now, on)?.owner.request(on.key).cost(cost).peek().into())
    }

    fn refund(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        match &self.at(now, on)?.owner {
            Owner::Limiter(limiter) => limiter.refund(on.key, cost),
            Owner::Gate(gate) => gate.refund(cost),
        }
        Ok(())
    }

    fn release(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        let kept = self.at(now, on)?;
        let held = kept.permits.iter().position(|(key, held, _)| key == on.key && *held == cost);
        match held.and_then(|index| kept.permits.remove(index)) {
            Some(permit) => drop(permit),
            None => return Err(Refusal::Failed(format!("nothing of cost {cost} is in flight"))),
        }
        Ok(())
    }

    fn reset(&mut self, now: Timestamp, on: Target<'_>) -> Result<(), Refusal> {
        let kept = self.at(now, on)?;
        match &kept.owner {
            Owner::Limiter(limiter) => limiter.reset(on.key),
            Owner::Gate(gate) => gate.reset(),
        }
        Ok(())
    }

    fn change(&mut self, now: Timestamp, limit: usize, rule: &str) -> Result<(), Refusal> {
        self.clock.set(now);
        let rule = read(rule)?;
        match self.limits.get(limit).map(|kept| &kept.owner) {
            Some(Owner::Limiter(limiter)) => limiter.set_rule(rule),
            Some(Owner::Gate(gate)) => gate.set_rule(rule),
            None => return Err(Refusal::Failed(format!("there is no limit number {limit}"))),
        }
        Ok(())
    }

    fn window(&mut self, now: Timestamp, on: Target<'_>) -> Result<Option<Window>, Refusal> {
        Ok(match &self.at(now, on)?.owner {
            Owner::Limiter(limiter) => limiter.window(on.key),
            Owner::Gate(gate) => gate.window(),
        })
    }
}
