//! Limits that come with each request, shared: `CL.THROTTLE` in Redis.
//!
//! Always   One script, one round trip, for whatever numbers a request brings. Redis says yes or no and what was owed;
//!          the five numbers of the answer are worked out from that by core, as they are in memory.
//! Always   Without Redis, this node's share decides. It is warm: what Redis admits is charged to it too. After an outage,
//!          for as long as a key owes what it was admitted without Redis, both must say yes to it.

use crate::connection::StoreError;
use crate::fallback::Recovery;
use crate::limit_context::{FailedRequest, HealthTracker, LimitHealth};
use crate::limit_context::{Stats, Tally};
use crate::script;
use crate::script::codec::bytes;
use crate::script::key_name;
use crate::store::RedisStore;
use redis::Value;
use std::sync::Arc;
use tidegate::throttle::{Throttle, Throttled, Throttles};
use tidegate::{Clock, Decision, Retry};
use tidegate_core::Span;

/// What stands for a limit's name in keys. No limit of a configuration can be called so.
const NAME: &str = "cl:throttle";

/// Keys whose rate comes with each request, shared by all who use the same store.
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
    tally: Tally,
    health: Arc<HealthTracker>,
    /// What was admitted without Redis.
    recovery: Recovery,
}

impl RedisStore {
    /// Keys whose rate comes with each request. Without Redis, `share` decides, as one of so many nodes.
    ///
    /// ```no_run
    /// # async fn example(store: tidegate_redis::RedisStore) {
    /// let throttles = store.throttles(tidegate::throttle::Throttles::new(), 10);
    /// # }
    /// ```
    pub fn throttles<C: Clock>(&self, share: Throttles<C>, nodes: u64) -> RedisThrottles<C> {
        let (tally, health, recovery) = (Tally::default(), Arc::default(), Recovery::default());
        RedisThrottles { store: self.clone(), share, nodes, tally, health, recovery }
    }
}

impl<C: Clock> RedisThrottles<C> {
    /// Decides, and charges unless it denies; without Redis, by this node's share.
    ///
    /// ```no_run
    /// # async fn example(throttles: tidegate_redis::RedisThrottles<tidegate::SystemClock>) -> Result<(), tidegate::throttle::ZeroRate> {
    /// let thirty_a_minute = tidegate::throttle::Throttle::new(15, 30, 60, 1)?;
    /// println!("{}", throttles.check(b"user123", &thirty_a_minute).await.is_limited);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check(&self, key: &[u8], throttle: &Throttle) -> Throttled {
        let throttled = self.try_check(key, throttle).await.unwrap_or_else(|error| {
            self.tally.failed(NAME, &error);
            self.without(key, &throttle.share(self.nodes))
        });
        self.tally.decided(&decision(throttled));
        throttled
    }

    /// The share's denial, while Redis does not know what the key was admitted without it.
    fn still_limited(&self, key: &[u8], share: &Throttle) -> Option<Throttled> {
        // While the outage lasts, this is a failure like others, and counted as one.
        if !self.recovery.counts(key) || !self.store.inner.link.is_up(&self.key(key)) {
            return None;
        }
        let owed = self.share.limiter().request(key).cost(0).peek().reset_after;
        let (_, throttled) = share.decide(owed.as_micros().saturating_mul(1_000));
        throttled.is_limited.then_some(throttled)
    }

    /// What Redis has admitted is charged to the share too, which after an outage must admit it. What Redis has then
    /// charged in vain drains: who asked at the same time was faster.
    fn warm(&self, key: &[u8], share: &Throttle, throttled: Throttled) -> Throttled {
        if throttled.is_limited {
            return throttled;
        }
        let here = self.share.check(key, share);
        if here.is_limited && self.recovery.counts(key) { here } else { throttled }
    }

    /// An answer without Redis.
    fn without(&self, key: &[u8], share: &Throttle) -> Throttled {
        let here = self.share.check(key, share);
        let [price, _] = share.as_debts();
        if !here.is_limited && price > 0 {
            let owed = self.share.limiter().request(key).cost(0).peek().reset_after;
            self.recovery.admitted(key, owed.as_duration());
        }
        here
    }

    /// Decides, or says why there is no decision. This node's share is charged too, as by [`check`](Self::check).
    ///
    /// ```no_run
    /// # async fn example(throttles: tidegate_redis::RedisThrottles<tidegate::SystemClock>) -> Result<(), Box<dyn std::error::Error>> {
    /// let thirty_a_minute = tidegate::throttle::Throttle::new(15, 30, 60, 1)?;
    /// println!("{:?}", throttles.try_check(b"user123", &thirty_a_minute).await?.reply());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_check(
        &self,
        key: &[u8],
        throttle: &Throttle,
    ) -> Result<Throttled, StoreError> {
        let share = throttle.share(self.nodes);
        if let Some(limited) = self.still_limited(key, &share) {
            return Ok(limited);
        }
        match self.ask(key, throttle).await {
            Ok(throttled) => {
                self.health.answered();
                Ok(self.warm(key, &share, throttled))
            }
            Err(error) => {
                let (store, key) = (&self.store.inner, self.key(key));
                let deadline = store.settings.deadline;
                self.health.failed(store, FailedRequest { key, deadline, error: &error });
                Err(error)
            }
        }
    }

    async fn ask(&self, key: &[u8], throttle: &Throttle) -> Result<Throttled, StoreError> {
        let [price, capacity] = throttle.as_debts();
        let args = vec![bytes(&[pair(price), pair(capacity)].concat()), Vec::new()];
        let value = self.run(script::throttle(), key, args).await?;
        let (passes, debt) = read(&value).ok_or_else(|| self.malformed(&value))?;
        if !passes {
            return Ok(throttle.denied(debt));
        }
        let after = i128::from(debt) + i128::from(price);
        Ok(throttle.allowed(u64::try_from(after.max(0)).unwrap_or(u64::MAX)))
    }

    /// Forgets what a key owes. Tells whether it owed anything.
    ///
    /// ```no_run
    /// # async fn example(throttles: tidegate_redis::RedisThrottles<tidegate::SystemClock>) -> Result<(), tidegate_redis::StoreError> {
    /// if throttles.reset(b"user123").await? {
    ///     println!("it owed something");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn reset(&self, key: &[u8]) -> Result<bool, StoreError> {
        self.share.reset(key);
        self.recovery.forget(key);
        match self.run(script::forget(), key, Vec::new()).await? {
            Value::Int(deleted) => Ok(deleted > 0),
            other => Err(self.malformed(&other)),
        }
    }

    /// What decides without Redis.
    ///
    /// ```no_run
    /// # fn example(throttles: tidegate_redis::RedisThrottles<tidegate::SystemClock>) {
    /// throttles.share().reset(b"user123");
    /// # }
    /// ```
    pub fn share(&self) -> &Throttles<C> {
        &self.share
    }

    /// What has been decided here.
    ///
    /// ```no_run
    /// # fn example(throttles: tidegate_redis::RedisThrottles<tidegate::SystemClock>) {
    /// println!("{} denied", throttles.stats().denied);
    /// # }
    /// ```
    pub fn stats(&self) -> Stats {
        self.tally.read()
    }

    /// Whether Redis decides, as requests met it in the last second: see
    /// [`RedisLimiter::health`](crate::RedisLimiter::health).
    ///
    /// ```no_run
    /// # fn example(throttles: tidegate_redis::RedisThrottles<tidegate::SystemClock>) {
    /// println!("{:?}", throttles.health().state);
    /// # }
    /// ```
    pub fn health(&self) -> LimitHealth {
        self.health.read(&self.store.inner.link)
    }

    async fn run(
        &self,
        script: &'static script::Script,
        subject: &[u8],
        args: Vec<Vec<u8>>,
    ) -> Result<Value, StoreError> {
        let store = &self.store.inner;
        store.run(script, vec![self.key(subject)], args, store.settings.deadline).await
    }

    fn key(&self, subject: &[u8]) -> Vec<u8> {
        key_name::of(&self.store.inner.settings.prefix, NAME, subject)
    }

    fn malformed(&self, value: &Value) -> StoreError {
        let address = self.store.inner.link.nodes().first().map(|node| node.address());
        let what = format!("{value:?} for what a key owes");
        StoreError::Malformed { address: address.unwrap_or_default(), what }
    }
}

/// Whole microseconds, rounded down, and the nanoseconds that are left.
fn pair(ns: i64) -> [f64; 2] {
    #[expect(clippy::cast_precision_loss, reason = "146 years and more are as good as each other")]
    [ns.div_euclid(1_000) as f64, ns.rem_euclid(1_000) as f64]
}

/// Whether it passes, and what was owed, in nanoseconds.
fn read(value: &Value) -> Option<(bool, u64)> {
    let Value::Array(parts) = value else { return None };
    let [Value::Int(passes @ 0..=1), Value::Int(us), Value::Int(rest @ 0..=999)] = parts[..] else {
        return None;
    };
    let debt =
        u64::try_from(us).ok()?.checked_mul(1_000)?.checked_add(u64::try_from(rest).ok()?)?;
    Some((passes == 1, debt))
}

/// As far as it is counted.
fn decision(throttled: Throttled) -> Decision {
    if throttled.is_limited {
        Decision::UNLIMITED.deny(Retry::After(Span::ZERO)).decision
    } else {
        Decision::UNLIMITED
    }
}
