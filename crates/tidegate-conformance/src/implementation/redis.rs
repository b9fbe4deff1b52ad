//! The `tidegate-redis` crate on a real server, with a clock that is set for every request.

use super::{DOUBLES_MAX, Implementation, PartialDecision, Refusal, TakeRequest, Target};
use std::collections::VecDeque;
use tidegate::rule::Window;
use tidegate::{ManualClock, Rule, Timestamp};
use tidegate_redis::{
    RedisLimiter, RedisPermit, RedisStore, RedisStoreError, Settings, UnsupportedRule,
    try_check_all,
};
use tidegate_testbed::RedisServer;
use tokio::runtime::Runtime;

/// Redis, flushed for every scenario.
pub struct Redis {
    server: RedisServer,
    runtime: Runtime,
    clock: ManualClock,
    limits: Vec<RedisLimiter>,
    /// Permits that are held: limit, key and cost.
    held: VecDeque<(usize, String, u64, RedisPermit)>,
}

impl Default for Redis {
    fn default() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Self {
            server: RedisServer::start(),
            runtime: runtime.expect("there is a runtime"),
            clock: ManualClock::new(),
            limits: Vec::new(),
            held: VecDeque::new(),
        }
    }
}

fn failed(error: &RedisStoreError) -> Refusal {
    Refusal::Failed(error.to_string())
}

fn read(rule: &str) -> Result<Rule, Refusal> {
    rule.parse().map_err(|error: tidegate::RuleError| Refusal::Failed(error.to_string()))
}

impl Redis {
    fn at(&self, now: Timestamp, limit: usize) -> Result<RedisLimiter, Refusal> {
        if now.as_micros() >= DOUBLES_MAX {
            return Err(Refusal::CannotSay("times that doubles cannot count"));
        }
        self.clock.set(now);
        let missing = || Refusal::Failed(format!("there is no limit number {limit}"));
        self.limits.get(limit).cloned().ok_or_else(missing)
    }
}

impl Implementation for Redis {
    fn begin(&mut self, rules: &[&str], birth: Timestamp) -> Result<(), Refusal> {
        self.held.clear();
        self.clock = ManualClock::at(birth);
        self.server.command(&["FLUSHALL"]);
        let address = self.server.url().parse().expect("a server has an address");
        // A long deadline: on a busy machine, the fallback must not decide a test.
        let settings = Settings::default().deadline(std::time::Duration::from_secs(10));
        let opened = RedisStore::connect_with_clock(&address, settings, self.clock.clone());
        let store = self.runtime.block_on(opened);
        let rules: Result<Vec<Rule>, Refusal> = rules.iter().map(|rule| read(rule)).collect();
        let limiter = |(place, rule)| store.limiter(&format!("limit{place}"), rule);
        let limits: Result<Vec<RedisLimiter>, UnsupportedRule> =
            rules?.into_iter().enumerate().map(limiter).collect();
        self.limits = limits.map_err(|_| Refusal::CannotSay(super::MORE_THAN_DOUBLES_COUNT))?;
        for limiter in &self.limits {
            self.runtime.block_on(limiter.ready()).map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    fn take(
        &mut self,
        now: Timestamp,
        on: Target<'_>,
        ask: TakeRequest,
    ) -> Result<PartialDecision, Refusal> {
        if ask.wait_max.is_some() {
            return Err(Refusal::CannotSay("how long one would wait"));
        }
        let limiter = self.at(now, on.limit)?;
        if !limiter.rule().is_concurrency() {
            if ask.cost >= DOUBLES_MAX {
                return Err(Refusal::CannotSay("costs that doubles cannot count"));
            }
            let decided = self.runtime.block_on(limiter.try_check(on.key, ask.cost));
            return Ok(decided.map_err(|error| failed(&error))?.into());
        }
        match self.runtime.block_on(limiter.request(on.key).cost(ask.cost).try_acquire()) {
            Err(denied) => Ok(denied.decision.into()),
            Ok(permit) => {
                let decision = permit.decision();
                if ask.cost > 0 {
                    self.held.push_back((on.limit, on.key.to_owned(), ask.cost, permit));
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
        if self.limits.iter().any(|limiter| limiter.rule().is_concurrency()) {
            return Err(Refusal::CannotSay("holding a permit together with a rate"));
        }
        let requests = self.limits.iter().map(|limiter| limiter.request(key).cost(cost));
        let joint = self.runtime.block_on(try_check_all(requests));
        Ok(joint.map_err(|error| failed(&error))?.decision.into())
    }

    fn peek(
        &mut self,
        now: Timestamp,
        on: Target<'_>,
        cost: u64,
    ) -> Result<PartialDecision, Refusal> {
        let limiter = self.at(now, on.limit)?;
        let seen = self.runtime.block_on(limiter.request(on.key).cost(cost).peek());
        Ok(seen.map_err(|error| failed(&error))?.into())
    }

    fn refund(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        let limiter = self.at(now, on.limit)?;
        self.runtime.block_on(limiter.refund(on.key, cost)).map_err(|error| failed(&error))
    }

    fn release(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        self.at(now, on.limit)?;
        let is_it = |(limit, key, held, _): &(usize, String, u64, RedisPermit)| {
            *limit == on.limit && key == on.key && *held == cost
        };
        let held = self.held.iter().position(is_it).and_then(|place| self.held.remove(place));
        let nothing = || Refusal::Failed(format!("nothing of cost {cost} is in flight"));
        let (.., permit) = held.ok_or_else(nothing)?;
        let released = self.runtime.block_on(permit.release());
        released.map(drop).map_err(|error| Refusal::Failed(error.to_string()))
    }

    fn reset(&mut self, now: Timestamp, on: Target<'_>) -> Result<(), Refusal> {
        let limiter = self.at(now, on.limit)?;
        self.runtime.block_on(limiter.reset(on.key)).map_err(|error| failed(&error))
    }

    fn change(&mut self, now: Timestamp, limit: usize, rule: &str) -> Result<(), Refusal> {
        let limiter = self.at(now, limit)?;
        self.runtime.block_on(limiter.set_rule(read(rule)?)).map_err(|error| failed(&error))
    }

    fn window(&mut self, now: Timestamp, on: Target<'_>) -> Result<Option<Window>, Refusal> {
        let limiter = self.at(now, on.limit)?;
        self.runtime.block_on(limiter.window(on.key)).map_err(|error| failed(&error))
    }
}
