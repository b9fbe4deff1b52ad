//! Several requests decided as one, whether Redis answers or not.
//!
//! Always   Without Redis each limit's policy is asked, and the strictest wins: all shares of this node are charged,
//!          or none. So who is denied by one limit has not used up another.

use crate::joint::{JointAsk, check_all};
use crate::link::StoreError;
use std::collections::HashSet;
use tidegate::{Ask, Decision, Joint, SystemClock};

/// Decides several requests as one, as [`check_all`] does; without Redis, by the limits' policies.
///
/// ```no_run
/// # async fn example(user: tidegate_redis::RedisLimiter, site: tidegate_redis::RedisLimiter) {
/// use tidegate_redis::{JointAsk, decide_all};
///
/// let joint = decide_all(&[
///     JointAsk { limiter: &user, key: b"alice", cost: 1 },
///     JointAsk { limiter: &site, key: b"alice", cost: 1 },
/// ])
/// .await;
/// println!("{:?}", joint.decision);
/// # }
/// ```
pub async fn decide_all(asks: &[JointAsk<'_>]) -> Joint {
    let joint = match check_all(asks).await {
        Ok(joint) => {
            if !joint.decision.is_deny() {
                warm(asks, &joint.decision);
            }
            joint
        }
        Err(error) => without(asks, &error),
    };
    for (ask, decision) in asks.iter().zip(&joint.each) {
        ask.limiter.inner.tally.decided(decision);
    }
    joint
}

/// What Redis has admitted is charged to the shares too.
fn warm(asks: &[JointAsk<'_>], decision: &Decision) {
    for ask in asks {
        // What the shares say is not asked: Redis has decided for all of them together.
        let _ = ask.limiter.inner.fallback.warm(ask.key, ask.cost, *decision);
    }
}

fn without(asks: &[JointAsk<'_>], error: &StoreError) -> Joint {
    let mut told = HashSet::new();
    for ask in asks {
        let inner = &ask.limiter.inner;
        // One request that failed is one failure of each limit, however often it names it.
        if told.insert(inner.exact.name()) {
            inner.tally.failed(inner.exact.name(), error);
        }
    }
    let mut shared = decide_shares(asks).into_iter();
    let decision = |ask: &JointAsk<'_>| {
        let fallback = &ask.limiter.inner.fallback;
        let Some(decision) = fallback.share().and_then(|_| shared.next()) else {
            return fallback.fixed();
        };
        fallback.remember(&decision);
        decision
    };
    Joint::of(asks.iter().map(decision).collect())
}

/// What this node's shares say: all are charged, or none, and none if a limit without a share denies.
fn decide_shares(asks: &[JointAsk<'_>]) -> Vec<Decision> {
    let is_denied = asks.iter().any(|ask| {
        let fallback = &ask.limiter.inner.fallback;
        fallback.share().is_none() && fallback.fixed().is_deny()
    });
    let share = |ask: &JointAsk<'_>| -> Option<Ask<SystemClock>> {
        let share = ask.limiter.inner.fallback.share()?;
        Some(share.ask(ask.key).cost(if is_denied { 0 } else { ask.cost }))
    };
    let shares = asks.iter().filter_map(share);
    if is_denied {
        return shares.map(Ask::peek).collect();
    }
    tidegate::check_all(shares).each
}
