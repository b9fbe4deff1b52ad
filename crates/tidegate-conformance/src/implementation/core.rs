//! `tidegate-core` itself, with a map of keys around it.

use super::in_flight::InFlight;
use super::{
    DecisionResult, Implementation, PartialDecision, Refusal, TakeRequest, Target, failed,
    no_limit, zone,
};
use std::collections::BTreeMap;
use tidegate_core::{Limit, State, Ticket, Timestamp, Window};

/// `tidegate-core`, called directly.
#[derive(Debug, Default)]
pub struct Core {
    limits: Vec<LimitState>,
    in_flight: InFlight<Ticket>,
}

#[derive(Debug)]
struct LimitState {
    limit: Limit,
    birth: Timestamp,
    keys: BTreeMap<String, State>,
}

impl LimitState {
    fn state(&self, key: &str) -> State {
        self.keys.get(key).cloned().unwrap_or_else(|| self.limit.fresh(self.birth))
    }

    fn store(&mut self, key: &str, state: State) {
        self.keys.insert(key.to_owned(), state);
    }
}

impl Core {
    fn limit(&mut self, number: usize) -> Result<&mut LimitState, Refusal> {
        self.limits.get_mut(number).ok_or_else(|| no_limit(number))
    }
}

fn read(rule: &str) -> Result<Limit, Refusal> {
    Limit::read(rule, zone::find).map_err(failed)
}

impl Implementation for Core {
    fn begin(&mut self, rules: &[&str], birth: Timestamp) -> Result<(), Refusal> {
        self.in_flight = InFlight::default();
        let limit =
            |rule: &&str| Ok(LimitState { limit: read(rule)?, birth, keys: BTreeMap::new() });
        self.limits = rules.iter().map(limit).collect::<Result<_, Refusal>>()?;
        Ok(())
    }

    fn take(&mut self, now: Timestamp, on: Target<'_>, ask: TakeRequest) -> DecisionResult {
        let limit = self.limit(on.limit)?;
        let mut state = limit.state(on.key);
        let (decision, ticket) = match ask.wait_max {
            Some(wait) => (limit.limit.decide_within(&mut state, now, ask.cost, wait), None),
            None => limit.limit.enter(&mut state, now, ask.cost),
        };
        limit.store(on.key, state);
        if let Some(ticket) = ticket {
            self.in_flight.add(on, ask.cost, ticket);
        }
        Ok(decision.into())
    }

    fn take_all(&mut self, now: Timestamp, key: &str, cost: u64) -> DecisionResult {
        let mut taken = Vec::new();
        for limit in &self.limits {
            let mut state = limit.state(key);
            let (decision, ticket) = limit.limit.enter(&mut state, now, cost);
            taken.push((state, decision, ticket));
        }
        let is_denied = taken.iter().any(|(_, decision, _)| decision.is_deny());
        let mut answers = Vec::new();
        for (number, (state, decision, ticket)) in taken.into_iter().enumerate() {
            let limit = &mut self.limits[number];
            if !is_denied {
                limit.store(key, state);
                if let Some(ticket) = ticket {
                    self.in_flight.add(Target { limit: number, key }, cost, ticket);
                }
                answers.push(PartialDecision::from(decision));
            } else if decision.is_deny() {
                answers.push(PartialDecision::from(decision));
            } else {
                // This limit would have admitted the request, but another one denied it: nothing is charged.
                answers.push(PartialDecision::from(limit.limit.peek(&limit.state(key), now, 0)));
            }
        }
        PartialDecision::most_severe(answers).ok_or_else(|| failed("there are no limits"))
    }

    fn peek(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> DecisionResult {
        let limit = self.limit(on.limit)?;
        Ok(limit.limit.peek(&limit.state(on.key), now, cost).into())
    }

    fn refund(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        let limit = self.limit(on.limit)?;
        let mut state = limit.state(on.key);
        limit.limit.refund(&mut state, now, cost);
        limit.store(on.key, state);
        Ok(())
    }

    fn release(&mut self, _now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        let ticket = self.in_flight.remove(on, cost)?;
        let limit = self.limit(on.limit)?;
        let mut state = limit.state(on.key);
        limit.limit.release(&mut state, ticket);
        limit.store(on.key, state);
        Ok(())
    }

    fn reset(&mut self, _now: Timestamp, on: Target<'_>) -> Result<(), Refusal> {
        let limit = self.limit(on.limit)?;
        if limit.limit.is_concurrency() {
            // The tickets of this key are no longer valid.
            let mut state = limit.state(on.key);
            limit.limit.release_all(&mut state);
            limit.store(on.key, state);
        } else {
            limit.keys.remove(on.key);
        }
        Ok(())
    }

    fn change(&mut self, now: Timestamp, limit: usize, rule: &str) -> Result<(), Refusal> {
        let old = self.limit(limit)?;
        let new = read(rule)?;
        for state in old.keys.values_mut() {
            *state = new.take_over(&old.limit, state, now);
        }
        old.limit = new;
        Ok(())
    }

    fn window(&mut self, now: Timestamp, on: Target<'_>) -> Result<Option<Window>, Refusal> {
        let limit = self.limit(on.limit)?;
        Ok(limit.limit.window(&limit.state(on.key), now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{Retry, Span, Verdict};

    #[test]
    fn a_denial_by_one_limit_charges_none_and_reports_the_least_remaining() {
        let (mut core, now) = (Core::default(), Timestamp::EPOCH);
        core.begin(&["10/s", "2/min", "concurrency 5"], now).unwrap();
        assert_eq!(core.take_all(now, "k", 2).unwrap().remaining, Some(0));
        let denied = core.take_all(now, "k", 1).unwrap();
        assert_eq!(denied.verdict, Verdict::Deny(Retry::After(Span::from_secs(30))).into());
        assert_eq!(denied.reset_after, Some(Span::MAX), "unknown until a release");
        let left = |core: &mut Core, limit| {
            core.peek(now, Target { limit, key: "k" }, 0).unwrap().remaining
        };
        assert_eq!((left(&mut core, 0), left(&mut core, 2)), (Some(8), Some(3)));
    }
}
