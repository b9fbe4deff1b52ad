//! Several requests decided as one, in Redis: all of them pass, or none is charged (A13).
//!
//! Always   Keys that lie together are decided in one script, so nobody sees a part of it. On a single server all
//!          lie together; in a cluster, those of one subject do.
//!          Keys of several slots cannot: each slot's are charged in turn (reserved), and if one slot denies, or
//!          does not answer, those before it are given back. Then others may be denied for that moment what is given
//!          back after it, and who dies in that moment has charged what nobody used: never the other way round.
//! Always   A denial stays one, whoever does not answer after it.

use crate::exact::Exact;
use crate::limiter::{Inner, RedisLimiter};
use crate::link::{Link, StoreError};
use crate::registry::Current;
use crate::script;
use crate::shared::{Answer, Said, Verb};
use redis::Value;
use std::sync::Arc;
use tidegate::{Decision, Joint};

/// Rules may change while somebody asks, and again; after so many times it is told so.
const ROUNDS_MAX: usize = 8;

/// One request of several.
///
/// ```no_run
/// # async fn example(limiter: tidegate_redis::RedisLimiter) {
/// use tidegate_redis::JointAsk;
///
/// let ask = JointAsk { limiter: &limiter, key: b"alice", cost: 1 };
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct JointAsk<'a> {
    /// Under which limit.
    pub limiter: &'a RedisLimiter,
    /// Whom it counts.
    pub key: &'a [u8],
    /// How much.
    pub cost: u64,
}

/// What is asked of one state.
#[derive(Debug)]
struct Sum<'a> {
    inner: &'a Inner,
    subject: &'a [u8],
    key: Vec<u8>,
    cost: u64,
}

/// A sum that was answered.
#[derive(Debug)]
struct Answered {
    current: Arc<Current>,
    answer: Answer,
}

/// Decides several requests as one: all are charged, or none is. All limits are of one store.
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
#[expect(clippy::missing_panics_doc, reason = "every ask is in a sum, and every sum is asked")]
pub async fn check_all(asks: &[JointAsk<'_>]) -> Result<Joint, StoreError> {
    let Some(first) = asks.first() else { return Ok(Joint::of(Vec::new())) };
    let sums = add_up(asks);
    let has_slots = first.limiter.inner.exact.store().link.has_slots();
    let slot = |sum: &Sum<'_>| if has_slots { Link::slot(&sum.key) } else { 0 };
    let mut order: Vec<usize> = (0..sums.len()).collect();
    order.sort_by_key(|place| slot(&sums[*place]));
    let mut decisions: Vec<Option<Decision>> = vec![None; sums.len()];
    let mut reserved: Vec<&[usize]> = Vec::new();
    for group in order.chunk_by(|a, b| slot(&sums[*a]) == slot(&sums[*b])) {
        let together: Vec<&Sum<'_>> = group.iter().map(|place| &sums[*place]).collect();
        let decided = decide(&together).await;
        let is_charged = matches!(decided, Ok((true, _)));
        if !is_charged {
            give_back(&sums, &reserved, &mut decisions).await;
        }
        let (_, each) = decided?;
        for (place, decision) in group.iter().zip(each) {
            decisions[*place] = Some(decision);
        }
        if !is_charged {
            break;
        }
        reserved.push(group);
    }
    let asked: Vec<Subject<'_>> = sums.iter().map(|sum| (&sum.inner.exact, sum.subject)).collect();
    let decisions = has_left(&asked, decisions).await;
    let decision = |ask: &JointAsk<'_>| {
        let place = sums.iter().position(|sum| sum.is_of(ask)).expect("every ask is in a sum");
        decisions[place]
    };
    Ok(Joint::of(asks.iter().map(decision).collect()))
}

fn add_up<'a>(asks: &[JointAsk<'a>]) -> Vec<Sum<'a>> {
    let mut sums: Vec<Sum<'a>> = Vec::with_capacity(asks.len());
    for ask in asks {
        if let Some(sum) = sums.iter_mut().find(|sum| sum.is_of(ask)) {
            // More than can be said is more than can be admitted.
            sum.cost = sum.cost.saturating_add(ask.cost);
            continue;
        }
        let inner = &*ask.limiter.inner;
        let key = inner.exact.key(ask.key);
        sums.push(Sum { inner, subject: ask.key, key, cost: ask.cost });
    }
    sums
}

impl Sum<'_> {
    fn is_of(&self, ask: &JointAsk<'_>) -> bool {
        std::ptr::eq(self.inner, &raw const *ask.limiter.inner) && self.subject == ask.key
    }
}

/// Decides those of one slot in one script: whether all are charged, and each decision.
async fn decide(sums: &[&Sum<'_>]) -> Result<(bool, Vec<Decision>), StoreError> {
    let first = sums.first().expect("a group has somebody");
    let first = &first.inner.exact;
    for _ in 0..ROUNDS_MAX {
        let Some((is_charged, answered)) = ask(sums).await? else { continue };
        let decision = |(sum, answered): (&&Sum<'_>, &Answered)| {
            let shared = &answered.current.shared;
            let of = |verb, cost| shared.decision(&answered.answer, verb, cost);
            // What no twin can be told is denied by what it costs.
            if is_charged || !shared.is_sendable(sum.cost) {
                return of(Verb::Take, sum.cost);
            }
            let would = of(Verb::Look, sum.cost)?;
            if would.is_deny() || !answered.answer.is_charged() {
                Ok(would)
            } else {
                of(Verb::Look, 0)
            }
        };
        let each: Result<Vec<Decision>, _> = sums.iter().zip(&answered).map(decision).collect();
        return Ok((is_charged, each.map_err(|strange| first.strange(&strange))?));
    }
    Err(first.malformed("states of yet other versions of the rules, again and again".to_owned()))
}

/// Asks once. Nothing, if a state had to be brought to its rule first.
async fn ask(sums: &[&Sum<'_>]) -> Result<Option<(bool, Vec<Answered>)>, StoreError> {
    let first = sums.first().expect("a group has somebody");
    let first = &first.inner.exact;
    let store = first.store();
    let mut currents = Vec::with_capacity(sums.len());
    // The first two are not used here.
    let mut args = vec![Vec::new(), Vec::new()];
    for sum in sums {
        currents.push(sum.inner.exact.known().await?);
    }
    // What no twin can be told can never be admitted, and then nobody is charged.
    let is_sendable =
        |(sum, current): (&&Sum<'_>, &Arc<Current>)| current.shared.is_sendable(sum.cost);
    let can_pass = sums.iter().zip(&currents).all(is_sendable);
    let verb = if can_pass { Verb::Take } else { Verb::Look };
    for (sum, current) in sums.iter().zip(&currents) {
        let shared = &current.shared;
        args.push(shared.stem().into());
        args.push(shared.args(verb, sum.cost, store.clock.about()));
        args.push(shared.fresh().to_vec());
    }
    let keys = sums.iter().map(|sum| sum.key.clone()).collect();
    let deadline = sums.iter().map(|sum| sum.inner.exact.deadline()).max().unwrap_or_default();
    let said = store.run(script::all_together(), keys, args, deadline).await?;
    let Value::Array(said) = said else { return Err(first.malformed(format!("{said:?}"))) };
    let Some((Value::Int(is_charged), said)) = said.split_first() else {
        return Err(first.malformed("nothing for several requests".to_owned()));
    };
    let mut answered = Vec::with_capacity(sums.len());
    let mut is_settled = said.len() == sums.len();
    for ((sum, current), value) in sums.iter().zip(currents).zip(said) {
        match current.shared.read(value).map_err(|strange| sum.inner.exact.strange(&strange))? {
            Said::Answer(answer) => answered.push(Answered { current, answer }),
            Said::OtherTime(now) => {
                store.clock.heard(now);
                is_settled = false;
            }
            Said::OtherVersion(value) => {
                sum.inner.exact.reconcile(&sum.key, &value, &current).await?;
                is_settled = false;
            }
        }
    }
    Ok(is_settled.then_some((can_pass && *is_charged == 1, answered)))
}

/// Gives back what other slots have charged.
async fn give_back(sums: &[Sum<'_>], reserved: &[&[usize]], decisions: &mut [Option<Decision>]) {
    // Collected first: who holds an iterator over slices across an answer cannot be sent to another thread.
    let places: Vec<usize> = reserved.iter().flat_map(|group| group.iter().copied()).collect();
    for place in places {
        let sum = &sums[place];
        give_back_one(sum.inner, sum.subject, sum.cost).await;
        decisions[place] = None;
    }
}

/// Gives back what was charged to one.
pub(crate) async fn give_back_one(inner: &Inner, subject: &[u8], cost: u64) {
    // What cannot be given back stays charged until it has drained.
    if let Err(error) = inner.exact.ask(subject, Verb::Refund, cost, None).await {
        tracing::warn!("a part of a joint decision stays charged: {error}");
    }
    // Whoever was denied for that moment is not denied any more. Without an answer it may have been given back too.
    inner.denied.forget(subject);
}

/// Who is asked what is left, and of whom.
pub(crate) type Subject<'a> = (&'a Exact, &'a [u8]);

/// Those who were not asked, or were given back, say what they have. It is denied already: so who does not answer
/// changes nothing, and nobody waits for a second one.
pub(crate) async fn has_left(
    asked: &[Subject<'_>],
    decisions: Vec<Option<Decision>>,
) -> Vec<Decision> {
    let mut is_answered = true;
    let mut each = Vec::with_capacity(asked.len());
    for ((exact, subject), decision) in asked.iter().zip(decisions) {
        let mut left = decision;
        if left.is_none() && is_answered {
            let looked = exact.ask(subject, Verb::Look, 0, None).await;
            is_answered = looked.is_ok();
            left = looked.ok().map(|looked| looked.decision);
        }
        each.push(left.unwrap_or_else(|| exact.nothing_left()));
    }
    each
}
