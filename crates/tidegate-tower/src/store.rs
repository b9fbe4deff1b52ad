//! Where a limit counts: in this process or, with the feature `redis`, where many do.

use tidegate::{Clock, Decision, Limiter, Rule};
#[cfg(feature = "redis")]
use tidegate_redis::RedisLimiter;

#[derive(Clone, Debug)]
pub(crate) enum Store<C: Clock> {
    Memory(Limiter<C>),
    #[cfg(feature = "redis")]
    Redis(RedisLimiter),
}

impl<C: Clock> Store<C> {
    /// The limiter, if it decides at once.
    #[cfg_attr(
        not(feature = "redis"),
        expect(clippy::unnecessary_wraps, reason = "with the feature it may be elsewhere")
    )]
    #[inline]
    pub(crate) fn memory(&self) -> Option<&Limiter<C>> {
        match self {
            Self::Memory(limiter) => Some(limiter),
            #[cfg(feature = "redis")]
            Self::Redis(_) => None,
        }
    }

    /// The rule as it stands.
    pub(crate) fn rule(&self) -> Rule {
        match self {
            Self::Memory(limiter) => limiter.rule(),
            #[cfg(feature = "redis")]
            Self::Redis(limiter) => limiter.rule(),
        }
    }

    /// Decides about one request on its own.
    #[cfg_attr(
        not(feature = "redis"),
        expect(clippy::unused_async, reason = "with the feature it waits")
    )]
    pub(crate) async fn check(&self, key: &[u8], cost: u64) -> Decision {
        match self {
            Self::Memory(limiter) => limiter.check_n(key, cost),
            #[cfg(feature = "redis")]
            Self::Redis(limiter) => limiter.check_n(key, cost).await,
        }
    }

    /// What [`check`](Self::check) would say, without charging. `None` if the store does not answer.
    #[cfg_attr(
        not(feature = "redis"),
        expect(clippy::unused_async, reason = "with the feature it waits")
    )]
    pub(crate) async fn peek(&self, key: &[u8], cost: u64) -> Option<Decision> {
        match self {
            Self::Memory(limiter) => Some(limiter.request(key).cost(cost).peek()),
            #[cfg(feature = "redis")]
            Self::Redis(limiter) => limiter.peek(key, cost).await.ok(),
        }
    }

    /// Gives back what was charged. Redis hears of it in the background.
    pub(crate) fn refund(&self, key: &[u8], cost: u64) {
        match self {
            Self::Memory(limiter) => limiter.refund(key, cost),
            #[cfg(feature = "redis")]
            Self::Redis(limiter) => {
                let (limiter, key) = (limiter.clone(), key.to_vec());
                // What cannot be given back stays charged until it has drained.
                background(async move { drop(limiter.refund(key, cost).await) });
            }
        }
    }

    /// Charges as much of `owed` as there is room for, and tells what is left.
    pub(crate) fn charge(&self, key: &[u8], owed: u64) -> u64 {
        match self {
            Self::Memory(limiter) => {
                let decision = limiter.check_n(key, owed);
                let room = decision.remaining.min(owed);
                if !decision.is_deny() {
                    0
                } else if room > 0 && !limiter.check_n(key, room).is_deny() {
                    owed - room
                } else {
                    owed
                }
            }
            // One question for all of it, when it is over.
            #[cfg(feature = "redis")]
            Self::Redis(_) => owed,
        }
    }

    /// Charges all of it, whether there is room or not: what is too much is taken from the time to come.
    pub(crate) fn charge_whole(&self, key: &[u8], owed: u64) {
        if owed == 0 {
            return;
        }
        match self {
            Self::Memory(limiter) => limiter.request(key).cost(owed).charge(),
            #[cfg(feature = "redis")]
            Self::Redis(limiter) => {
                let (limiter, key) = (limiter.clone(), key.to_vec());
                background(async move {
                    // Redis knows no debts: more than it has room for becomes all that it has.
                    let decision = limiter.check_n(&key, owed).await;
                    if decision.is_deny() {
                        let _ = limiter.check_n(&key, decision.remaining).await;
                    }
                });
            }
        }
    }
}

#[cfg(feature = "redis")]
fn background(work: impl Future<Output = ()> + Send + 'static) {
    // Where there is no runtime any more, the process ends, and nobody counts on it.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(work);
    }
}
