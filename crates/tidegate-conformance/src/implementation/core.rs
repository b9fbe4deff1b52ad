//! `tidegate-core` itself, with a map of keys around it.

use super::{Implementation, PartialDecision, Refusal, TakeRequest, Target, zone};
use std::collections::{BTreeMap, VecDeque};
use tidegate_core::{Limit, RuleError, State, Ticket, Timestamp, Window};

/// `tidegate-core`, called directly.
#[derive(Debug, Default)]
pub struct Core {
    limits: Vec<LimitState>,
}

#[derive(Debug)]
struct LimitState {
    limit: Limit,
    birth: Timestamp,
    keys: BTreeMap<String, State>,
    /// Requests in flight, oldest first: key, cost and ticket.
    in_flight: VecDeque<(String, u64, Ticket)>,
}

impl LimitState {
    fn state(&self, key: &str) -> State {
        self.keys.get(key).cloned().unwrap_or_else(|| self.limit.fresh(self.birth))
    }

    fn keep(&mut self, key: &str, state: State) {
        self.keys.insert(key.to_owned(), state);
    }
}

impl Core {
    fn kept(&mut self, on: Target<'_>) -> Result<&mut LimitState, Refusal> {
        let failed = || Refusal::Failed(format!("there is no limit number {}", on.limit));
        self.limits.get_mut(on.limit).ok_or_else(failed)
    }
}

fn read(rule: &str) -> Result<Limit, Refusal> {
    Limit::read(rule, zone::find).map_err(|error: RuleError| Refusal::Failed(error.to_string()))
}

impl Implementation for Core {
    fn begin(&mut self, rules: &[&str], birth: Timestamp) -> Result<(), Refusal> {
        self.limits.clear();
        for rule in rules {
            let (limit, keys, in_flight) = (read(rule)?, BTreeMap::new(), VecDeque::new());
            self.limits.push(LimitState { limit, birth, keys, in_flight });
        }
        Ok(())
    }

    fn take(
        &mut self,
        now: Timestamp,
        on: Target<'_>,
        ask: TakeRequest,
    ) -> Result<PartialDecision, Refusal> {
        let kept = self.kept(on)?;
        let mut state = kept.state(on.key);
        let decision = if let Some(wait_max) = ask.wait_max {
            kept.limit.decide_within(&mut state, now, ask.cost, wait_max)
        } else {
            let (decision, ticket) = kept.limit.enter(&mut state, now, ask.cost);
            kept.in_flight.extend(ticket.map(|ticket| (on.key.to_owned(), ask.cost, ticket)));
            decision
        };
        kept.keep(on.key, state);
        Ok(decision.into())
    }

    fn take_all(
        &mut self,
        now: Timestamp,
        key: &str,
        cost: u64,
    ) -> Result<PartialDecision, Refusal> {
        let mut taken = Vec::new();
        for kept in &self.limits {
            let mut state = kept.state(key);
            let (decision, ticket) = kept.limit.enter(&mut state, now, cost);
            taken.push((state, decision, ticket));
        }
        let is_denied = taken.iter().any(|(_, decision, _)| decision.is_deny());
        let mut answers = Vec::new();
        for (kept, (state, decision, ticket)) in self.limits.iter_mut().zip(taken) {
            if !is_denied {
                kept.keep(key, state);
                kept.in_flight.extend(ticket.map(|ticket| (key.to_owned(), cost, ticket)));
                answers.push(PartialDecision::from(decision));
            } else if decision.is_deny() {
                answers.push(PartialDecision::from(decision));
            } else {
                // This limit would have admitted the request, but another one denied it: nothing is charged.
                answers.push(PartialDecision::from(kept.limit.peek(&kept.state(key), now, 0)));
            }
        }
        PartialDecision::most_severe(answers)
            .ok_or_else(|| Refusal::Failed("there are no limits".to_owned()))
    }

    fn peek(
        &mut self,
        now: Timestamp,
        on: Target<'_>,
        cost: u64,
    ) -> Result<PartialDecision, Refusal> {
        let kept = self.kept(on)?;
        Ok(kept.limit.peek(&kept.state(on.key), now, cost).into())
    }

    fn refund(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        let kept = self.kept(on)?;
        let mut state = kept.state(on.key);
        kept.limit.refund(&mut state, now, cost);
        kept.keep(on.key, state);
        Ok(())
    }

    fn release(&mut self, _now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        let kept = self.kept(on)?;
        let is_it = |(key, held, _): &(String, u64, Ticket)| key == on.key && *held == cost;
        let oldest = kept.in_flight.iter().position(is_it);
        let Some((_, _, ticket)) = oldest.and_then(|index| kept.in_flight.remove(index)) else {
            return Err(Refusal::Failed(format!("no request of cost {cost} is in flight")));
        };
        let mut state = kept.state(on.key);
        kept.limit.release(&mut state, ticket);
        kept.keep(on.key, state);
        Ok(())
    }

    fn reset(&mut self, _now: Timestamp, on: Target<'_>) -> Result<(), Refusal> {
        let kept = self.kept(on)?;
        if kept.limit.is_concurrency() {
            // The tickets of this key are no longer valid.
            let mut state = kept.state(on.key);
            kept.limit.release_all(&mut state);
            kept.keep(on.key, state);
        } else {
            kept.keys.remove(on.key);
        }
        Ok(())
    }

    fn change(&mut self, now: Timestamp, limit: usize, rule: &str) -> Result<(), Refusal> {
        let kept = self.kept(Target { limit, key: "" })?;
        let new = read(rule)?;
        for state in kept.keys.values_mut() {
            *state = new.take_over(&kept.limit, state, now);
        }
        kept.limit = new;
        Ok(())
    }

    fn window(&mut self, now: Timestamp, on: Target<'_>) -> Result<Option<Window>, Refusal> {
        let kept = self.kept(on)?;
        Ok(kept.limit.window(&kept.state(on.key), now))
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
        assert_eq!(denied.reset_after, Some(Span::MAX), "only a release can tell");
        let left = |core: &mut Core, limit| {
            core.peek(now, Target { limit, key: "k" }, 0).unwrap().remaining
        };
        assert_eq!((left(&mut core, 0), left(&mut core, 2)), (Some(8), Some(3)));
    }
}
