//! Rates that come with each request, shared: `CL.THROTTLE` in Redis.
//!
//! Invariant  One script and one round trip, whatever rate a request brings. Redis replies whether the request is admitted and the
//!            debt before; `tidegate_core` computes the numbers of the answer, as it does in memory.
//! Invariant  Without Redis this node's share decides. The share is charged for what Redis admits, and after an outage both must
//!            admit a key until it has recovered from what was admitted without Redis.

use crate::connection::RedisStoreError;
use crate::fallback::Recovery;
use crate::monitor::{Counters, FailedRequest, HealthTracker, LimitHealth, RedisStats};
use crate::script;
use crate::script::codec::bytes;
use crate::script::key_name;
use crate::store::RedisStore;
use redis::Value;
use std::sync::Arc;
use tidegate::throttle::{Throttle, Throttled, Throttles};
use tidegate::{Clock, Decision, Retry};
use tidegate_core::Span;

/// The name of the limit in keys. No limit of a configuration can have this name.
const NAME: &str = "cl:throttle";

/// Keys whose rate comes with each request, shared by all processes with the same store.
///
/// ```no_run
/// # async fn example(store: tidegate_redis::RedisStore) -> Result<(), tidegate::throttle::ZeroRate> {
/// use tidegate::throttle::{Throttle, Throttles};
///
/// let throttles = store.throttles(Throttles::new(), 1);
/// let thirty_a_minute = Throttle::new(15, 30, 60, 1)?;
/// assert_eq!(throttles.check(b"user123", &thirty_a_minute).await.reply(), [0, 16, 15, -1, 2]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedisThrottles<C: Clock> {
    store: RedisStore,
    share: Throttles<C>,
    nodes: u64,
    counters: Counters,
    health: Arc<HealthTracker>,
    recovery: Recovery,
}

impl RedisStore {
    /// Returns limits whose rate comes with each request. Without Redis, `share` decides, as one of this many nodes.
    pub fn throttles<C: Clock>(&self, share: Throttles<C>, nodes: u64) -> RedisThrottles<C> {
        let (counters, health, recovery) =
            (Counters::default(), Arc::default(), Recovery::default());
        RedisThrottles { store: self.clone(), share, nodes, counters, health, recovery }
    }
}

impl<C: Clock> RedisThrottles<C> {
    /// Decides, and charges unless it denies. Without Redis, this node's share decides.
    pub async fn check(&self, key: &[u8], throttle: &Throttle) -> Throttled {
        let throttled = self.try_check(key, throttle).await.unwrap_or_else(|error| {
            self.counters.failed(NAME, &error);
            self.decide_without_redis(key, &throttle.share(self.nodes))
        });
        self.counters.decided(&decision(throttled));
        throttled
    }

    /// Returns the share's denial of a key with a debt of which Redis does not know.
    fn still_limited(&self, key: &[u8], share: &Throttle) -> Option<Throttled> {
        // During the outage itself the request fails, and is counted as a failure.
        if !self.recovery.counts(key) || !self.store.runner.servers.is_up(&self.key(key)) {
            return None;
        }
        let owed = self.share.limiter().request(key).cost(0).peek().reset_after;
        let (_, throttled) = share.decide(owed.as_micros().saturating_mul(1_000));
        throttled.is_limited.then_some(throttled)
    }

    /// Charges the share for what Redis has admitted. While the key recovers from an outage, returns the share's denial, if it
    /// denies; what Redis has charged then drains.
    fn confirm(&self, key: &[u8], share: &Throttle, throttled: Throttled) -> Throttled {
        if throttled.is_limited {
            return throttled;
        }
        let here = self.share.check(key, share);
        if here.is_limited && self.recovery.counts(key) { here } else { throttled }
    }

    /// Decides without Redis.
    fn decide_without_redis(&self, key: &[u8], share: &Throttle) -> Throttled {
        let here = self.share.check(key, share);
        let [price, _] = share.as_debts();
        if !here.is_limited && price > 0 {
            let owed = self.share.limiter().request(key).cost(0).peek().reset_after;
            self.recovery.admitted(key, owed.as_duration());
        }
        here
    }

    /// Decides as [`check`](Self::check) does, for callers with a policy of their own.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn try_check(
        &self,
        key: &[u8],
        throttle: &Throttle,
    ) -> Result<Throttled, RedisStoreError> {
        let share = throttle.share(self.nodes);
        if let Some(limited) = self.still_limited(key, &share) {
            return Ok(limited);
        }
        match self.decide_in_redis(key, throttle).await {
            Ok(throttled) => {
                self.health.answered();
                Ok(self.confirm(key, &share, throttled))
            }
            Err(error) => {
                let (runner, key) = (&self.store.runner, self.key(key));
                let deadline = runner.settings.deadline;
                self.health.failed(runner, FailedRequest { key, deadline, error: &error });
                Err(error)
            }
        }
    }

    async fn decide_in_redis(
        &self,
        key: &[u8],
        throttle: &Throttle,
    ) -> Result<Throttled, RedisStoreError> {
        let [price, capacity] = throttle.as_debts();
        let args = vec![bytes(&[pair(price), pair(capacity)].concat()), Vec::new()];
        let value = self.run(&script::THROTTLE, key, args).await?;
        let (is_admitted, debt) = read(&value).ok_or_else(|| self.malformed(&value))?;
        if !is_admitted {
            return Ok(throttle.denied(debt));
        }
        let after = i128::from(debt) + i128::from(price);
        Ok(throttle.allowed(u64::try_from(after.max(0)).unwrap_or(u64::MAX)))
    }

    /// Forgets the debt of a key. Returns whether it had one.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn reset(&self, key: &[u8]) -> Result<bool, RedisStoreError> {
        self.share.reset(key);
        self.recovery.forget(key);
        match self.run(&script::FORGET, key, Vec::new()).await? {
            Value::Int(deleted) => Ok(deleted > 0),
            other => Err(self.malformed(&other)),
        }
    }

    /// Returns the limits in memory that decide without Redis.
    pub fn share(&self) -> &Throttles<C> {
        &self.share
    }

    /// Returns what this process has decided.
    pub fn stats(&self) -> RedisStats {
        self.counters.read()
    }

    /// Returns whether Redis decided requests in the last second: see
    /// [`RedisLimiter::health`](crate::RedisLimiter::health).
    pub fn health(&self) -> LimitHealth {
        self.health.read(&self.store.runner.servers)
    }

    async fn run(
        &self,
        script: &'static script::Script,
        subject: &[u8],
        args: Vec<Vec<u8>>,
    ) -> Result<Value, RedisStoreError> {
        let runner = &self.store.runner;
        runner.run(script, vec![self.key(subject)], args, runner.settings.deadline).await
    }

    fn key(&self, subject: &[u8]) -> Vec<u8> {
        key_name::of(&self.store.runner.settings.prefix, NAME, subject)
    }

    fn malformed(&self, value: &Value) -> RedisStoreError {
        self.store.runner.malformed(format!("{value:?} for the debt of a key"))
    }
}

/// Splits nanoseconds into whole microseconds, rounded down, and the rest.
fn pair(ns: i64) -> [f64; 2] {
    #[expect(clippy::cast_precision_loss, reason = "exact up to 142 years of microseconds")]
    [ns.div_euclid(1_000) as f64, ns.rem_euclid(1_000) as f64]
}

/// Reads whether the request is admitted, and the debt before in nanoseconds.
fn read(value: &Value) -> Option<(bool, u64)> {
    let Value::Array(parts) = value else { return None };
    let [Value::Int(admitted @ 0..=1), Value::Int(us), Value::Int(rest @ 0..=999)] = parts[..]
    else {
        return None;
    };
    let debt =
        u64::try_from(us).ok()?.checked_mul(1_000)?.checked_add(u64::try_from(rest).ok()?)?;
    Some((admitted == 1, debt))
}

/// Returns a decision with the same verdict, to be counted.
fn decision(throttled: Throttled) -> Decision {
    if throttled.is_limited {
        Decision::UNLIMITED.deny(Retry::After(Span::ZERO)).decision
    } else {
        Decision::UNLIMITED
    }
}
