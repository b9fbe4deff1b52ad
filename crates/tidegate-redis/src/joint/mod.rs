//! Several requests decided as one, whether Redis answers or not.
//!
//! Always   Without Redis each limit's policy is asked, and the strictest wins: all shares of this node are charged,
//!          or none. So who is denied by one limit has not used up another.
//! Always   After an outage Redis and the shares must all say yes, for as long as a key takes to recover from what it was
//!          admitted without Redis.

mod charge;

use crate::connection::{Deadline, StoreError};
pub use charge::JointAsk;
use charge::{self as joint, Charged, Subject, Sums, charge_all};
use std::collections::HashSet;
use std::sync::Arc;
use tidegate::{Decision, Joint, Request, SystemClock};

/// Decides several requests as one: all are charged, or none is. All limits are of one store. The shares of
/// this node are charged too, as by [`decide_all`].
///
/// ```no_run
/// # async fn example(user: tidegate_redis::RedisLimiter, site: tidegate_redis::RedisLimiter)
/// # -> Result<(), tidegate_redis::StoreError> {
/// use tidegate_redis::{JointAsk, check_all};
///
/// let joint = check_all(&[
///     JointAsk { limiter: &user, key: b"alice", cost: 1 },
///     JointAsk { limiter: &site, key: b"alice", cost: 1 },
/// ])
/// .await?;
/// println!("{:?}", joint.decision);
/// # Ok(())
/// # }
/// ```
pub async fn check_all(asks: &[JointAsk<'_>]) -> Result<Joint, StoreError> {
    let within = joint::within(asks);
    match Settled::of(asks) {
        None => with_redis(asks, &Sums::of(asks), within).await,
        Some(settled) if settled.is_denied() => Ok(has_left(asks, settled.each, within).await),
        Some(settled) => {
            let open = settled.open(asks);
            Ok(settled.with(with_redis(&open, &Sums::of(&open), within).await?))
        }
    }
}

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
    let Some(settled) = Settled::of(asks) else { return decide_open(asks).await };
    let is_denied = settled.is_denied();
    for (ask, decision) in asks.iter().zip(&settled.each) {
        if let Some(decision) = decision.filter(|decision| !is_denied || decision.is_deny()) {
            ask.limiter.inner.tally.decided(&decision);
        }
    }
    if is_denied {
        return has_left(asks, settled.each, joint::within(asks)).await;
    }
    let joint = decide_open(&settled.open(asks)).await;
    settled.with(joint)
}

/// The decisions of rules that admit nothing, which no store is asked for; none for the other requests.
#[derive(Debug)]
struct Settled {
    each: Vec<Option<Decision>>,
}

impl Settled {
    /// None if every request is for the store.
    fn of(asks: &[JointAsk<'_>]) -> Option<Self> {
        let settled = |ask: &JointAsk<'_>| ask.limiter.inner.exact.settled(ask.cost);
        if asks.iter().all(|ask| settled(ask).is_none()) {
            return None;
        }
        Some(Self { each: asks.iter().map(settled).collect() })
    }

    fn is_denied(&self) -> bool {
        self.each.iter().flatten().any(Decision::is_deny)
    }

    /// The requests that the store decides.
    fn open<'a>(&self, asks: &[JointAsk<'a>]) -> Vec<JointAsk<'a>> {
        let each = asks.iter().zip(&self.each);
        each.filter(|(_, settled)| settled.is_none()).map(|(ask, _)| *ask).collect()
    }

    /// All decisions, in the order of the requests.
    fn with(self, open: Joint) -> Joint {
        let mut open = open.each.into_iter();
        Joint::of(
            self.each.into_iter().filter_map(|settled| settled.or_else(|| open.next())).collect(),
        )
    }
}

/// Decides requests that are all for the store.
async fn decide_open(asks: &[JointAsk<'_>]) -> Joint {
    let (sums, deadline) = (Sums::of(asks), joint::within(asks));
    if let Some(joint) = told_already(asks, &sums, deadline).await {
        return joint;
    }
    let joint = with_redis(asks, &sums, deadline).await;
    let joint = joint.unwrap_or_else(|error| without(asks, &error));
    let is_denied = joint.decision.is_deny();
    for (ask, decision) in asks.iter().zip(&joint.each) {
        // Where another limit denied it, this one has admitted nobody.
        if !is_denied || decision.is_deny() {
            ask.limiter.inner.tally.decided(decision);
        }
    }
    joint
}

/// Redis decides, and after an outage the shares too.
async fn with_redis(
    asks: &[JointAsk<'_>],
    sums: &Sums<'_>,
    deadline: Deadline,
) -> Result<Joint, StoreError> {
    if let Some(denied) = still_denied(asks) {
        return Ok(has_left(asks, denied, deadline).await);
    }
    let (joint, charged) = charge_all(sums, deadline).await?;
    if joint.decision.is_deny() {
        for (ask, decision) in asks.iter().zip(&joint.each) {
            ask.limiter.inner.fallback.learn_remaining(ask.key, decision);
        }
        return Ok(joint);
    }
    Ok(warm(asks, joint, charged, deadline).await)
}

/// Some were denied a moment ago, and time has not changed that. The others have what they had then, as time has changed
/// it; only what nobody has heard of is asked for.
async fn told_already(asks: &[JointAsk<'_>], sums: &Sums<'_>, deadline: Deadline) -> Option<Joint> {
    let denied: Vec<Option<Decision>> =
        sums.each.iter().map(|sum| sum.inner.remembered(sum.subject, sum.cost)).collect();
    if denied.iter().all(Option::is_none) {
        return None;
    }
    let known = sums.each.iter().zip(&denied);
    let known = known.map(|(sum, denied)| denied.or_else(|| sum.inner.left(sum.subject))).collect();
    let subjects: Vec<Subject<'_>> =
        sums.each.iter().map(|sum| (&**sum.inner, sum.subject)).collect();
    let joint = sums.joint(&joint::has_left(&subjects, known, deadline).await);
    for ((ask, place), decision) in asks.iter().zip(&sums.places).zip(&joint.each) {
        let tally = &ask.limiter.inner.tally;
        // The others were only looked at, and have admitted nobody.
        if denied[*place].is_some() {
            tally.denied_here();
        } else if decision.is_deny() {
            tally.decided(decision);
        }
    }
    Some(joint)
}

/// The denials of shares, if there are any: Redis may not know yet what was admitted without it.
fn still_denied(asks: &[JointAsk<'_>]) -> Option<Vec<Option<Decision>>> {
    let denial = |ask: &JointAsk<'_>| {
        let same = asks.iter().filter(|other| is_same(ask, other));
        // More than can be said is more than can be admitted.
        let cost = same.fold(0, |sum: u64, other| sum.saturating_add(other.cost));
        ask.limiter.inner.fallback.still_denies(ask.key, cost)
    };
    let denied: Vec<Option<Decision>> = asks.iter().map(denial).collect();
    // While the outage lasts, this is a failure like others, and counted as one.
    let is_up = |ask: &JointAsk<'_>| ask.limiter.inner.exact.is_up(ask.key);
    (denied.iter().any(Option::is_some) && asks.iter().all(is_up)).then_some(denied)
}

/// Whether both ask about one state.
fn is_same(one: &JointAsk<'_>, other: &JointAsk<'_>) -> bool {
    Arc::ptr_eq(&one.limiter.inner, &other.limiter.inner) && one.key == other.key
}

/// Where some are denied, the others say what they have in Redis.
async fn has_left(
    asks: &[JointAsk<'_>],
    decisions: Vec<Option<Decision>>,
    deadline: Deadline,
) -> Joint {
    let subjects: Vec<Subject<'_>> =
        asks.iter().map(|ask| (&*ask.limiter.inner, ask.key)).collect();
    Joint::of(joint::has_left(&subjects, decisions, deadline).await)
}

/// What Redis has admitted is charged to the shares too. After an outage they must admit it, all of them, or none is
/// charged and Redis gets it back: who asked at the same time was faster.
async fn warm(asks: &[JointAsk<'_>], joint: Joint, charged: Charged, deadline: Deadline) -> Joint {
    let must = |ask: &JointAsk<'_>| {
        let share = ask.limiter.inner.fallback.must_agree(ask.key);
        share.map(|share| share.request(ask.key).cost(ask.cost))
    };
    let shares: Vec<Option<Request<SystemClock>>> = asks.iter().map(must).collect();
    let is_asked: Vec<bool> = shares.iter().map(Option::is_some).collect();
    let here = tidegate::check_all(shares.into_iter().flatten());
    if !here.decision.is_deny() {
        let told = asks.iter().zip(&joint.each).zip(is_asked);
        for ((ask, decision), _) in told.filter(|(_, is_asked)| !is_asked) {
            let _ = ask.limiter.inner.fallback.warm(ask.key, ask.cost, *decision);
        }
        charged.keep();
        return joint;
    }
    charged.give_back(deadline).await;
    let mut here = here.each.into_iter();
    let decisions =
        is_asked.iter().map(|is_asked| is_asked.then(|| here.next()).flatten()).collect();
    has_left(asks, decisions, deadline).await
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
        decision
    };
    let joint = Joint::of(asks.iter().map(decision).collect());
    // Where one is denied, none is admitted anything.
    if !joint.decision.is_deny() {
        for (ask, decision) in asks.iter().zip(&joint.each) {
            ask.limiter.inner.fallback.remember(ask.key, ask.cost, decision);
        }
    }
    joint
}

/// What this node's shares say: all are charged, or none, and none if a limit without a share denies.
fn decide_shares(asks: &[JointAsk<'_>]) -> Vec<Decision> {
    let is_denied = asks.iter().any(|ask| {
        let fallback = &ask.limiter.inner.fallback;
        fallback.share().is_none() && fallback.fixed().is_deny()
    });
    let share = |ask: &JointAsk<'_>| -> Option<Request<SystemClock>> {
        let share = ask.limiter.inner.fallback.share()?;
        Some(share.request(ask.key).cost(if is_denied { 0 } else { ask.cost }))
    };
    let shares = asks.iter().filter_map(share);
    if is_denied {
        return shares.map(Request::peek).collect();
    }
    tidegate::check_all(shares).each
}
