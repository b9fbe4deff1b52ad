//! The `tidegate-redis` crate on a real server, with a clock that is set for every request.

use super::in_flight::InFlight;
use super::{
    DOUBLES_MAX, DecisionResult, Implementation, Refusal, TakeRequest, Target, failed, no_limit,
    parsed,
};
use tidegate::rule::Window;
use tidegate::{ManualClock, Rule, Timestamp};
use tidegate_redis::{
    RedisLimiter, RedisPermit, RedisStore, Settings, UnsupportedRule, try_check_all,
};
use tidegate_testbed::RedisServer;
use tokio::runtime::Runtime;

/// Redis, flushed for every scenario.
pub struct Redis {
    server: RedisServer,
    runtime: Runtime,
    clock: ManualClock,
    limits: Vec<RedisLimiter>,
    in_flight: InFlight<RedisPermit>,
}

impl Default for Redis {
    fn default() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Self {
            server: RedisServer::start(),
            runtime: runtime.expect("there is a runtime"),
            clock: ManualClock::new(),
            limits: Vec::new(),
            in_flight: InFlight::default(),
        }
    }
}

impl Redis {
    fn at(&self, now: Timestamp, limit: usize) -> Result<RedisLimiter, Refusal> {
        if now.as_micros() >= DOUBLES_MAX {
            return Err(Refusal::Unsupported("times that doubles cannot count"));
        }
        self.clock.set(now);
        self.limits.get(limit).cloned().ok_or_else(|| no_limit(limit))
    }
}

impl Implementation for Redis {
    fn begin(&mut self, rules: &[&str], birth: Timestamp) -> Result<(), Refusal> {
        self.in_flight = InFlight::default();
        self.clock = ManualClock::at(birth);
        self.server.command(&["FLUSHALL"]);
        let address = self.server.url().parse().expect("a server has an address");
        // A long deadline: on a busy machine, the fallback must not decide a test.
        let settings = Settings::default().deadline(std::time::Duration::from_secs(10));
        let opened = RedisStore::connect_with_clock(&address, settings, self.clock.clone());
        let store = self.runtime.block_on(opened);
        let rules: Result<Vec<Rule>, Refusal> = rules.iter().map(|rule| parsed(rule)).collect();
        let limiter = |(place, rule)| store.limiter(&format!("limit{place}"), rule);
        let limits: Result<Vec<RedisLimiter>, UnsupportedRule> =
            rules?.into_iter().enumerate().map(limiter).collect();
        self.limits = limits.map_err(|_| Refusal::Unsupported(super::MORE_THAN_DOUBLES_COUNT))?;
        for limiter in &self.limits {
            self.runtime.block_on(limiter.ready()).map_err(failed)?;
        }
        Ok(())
    }

    fn take(&mut self, now: Timestamp, on: Target<'_>, ask: TakeRequest) -> DecisionResult {
        if ask.wait_max.is_some() {
            return Err(Refusal::Unsupported("a longest acceptable wait"));
        }
        let limiter = self.at(now, on.limit)?;
        if !limiter.rule().is_concurrency() {
            if ask.cost >= DOUBLES_MAX {
                return Err(Refusal::Unsupported("costs that doubles cannot count"));
            }
            let decided = self.runtime.block_on(limiter.try_check(on.key, ask.cost));
            return Ok(decided.map_err(failed)?.into());
        }
        match self.runtime.block_on(limiter.request(on.key).cost(ask.cost).try_acquire()) {
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
        if self.limits.iter().any(|limiter| limiter.rule().is_concurrency()) {
            return Err(Refusal::Unsupported("holding a permit together with a rate"));
        }
        let requests = self.limits.iter().map(|limiter| limiter.request(key).cost(cost));
        let joint = self.runtime.block_on(try_check_all(requests)).map_err(failed)?;
        Ok(joint.decision.into())
    }

    fn peek(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> DecisionResult {
        let limiter = self.at(now, on.limit)?;
        let seen = self.runtime.block_on(limiter.request(on.key).cost(cost).peek());
        Ok(seen.map_err(failed)?.into())
    }

    fn refund(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        let limiter = self.at(now, on.limit)?;
        self.runtime.block_on(limiter.refund(on.key, cost)).map_err(failed)
    }

    fn release(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        self.at(now, on.limit)?;
        let permit = self.in_flight.remove(on, cost)?;
        self.runtime.block_on(permit.release()).map(drop).map_err(failed)
    }

    fn reset(&mut self, now: Timestamp, on: Target<'_>) -> Result<(), Refusal> {
        let limiter = self.at(now, on.limit)?;
        self.runtime.block_on(limiter.reset(on.key)).map_err(failed)
    }

    fn change(&mut self, now: Timestamp, limit: usize, rule: &str) -> Result<(), Refusal> {
        let limiter = self.at(now, limit)?;
        self.runtime.block_on(limiter.set_rule(parsed(rule)?)).map_err(failed)
    }

    fn window(&mut self, now: Timestamp, on: Target<'_>) -> Result<Option<Window>, Refusal> {
        let limiter = self.at(now, on.limit)?;
        self.runtime.block_on(limiter.window(on.key)).map_err(failed)
    }
}
