//! Several requests decided as one, in Redis: all of them pass, or none is charged (A13).
//!
//! Always   Keys that lie together are decided in one script, so nobody sees a part of it. On a single server all
//!          lie together; in a cluster, those of one subject do.
//!          Keys of several slots cannot: each slot's are charged in turn (reserved), and if one slot denies, or
//!          does not answer, those before it are given back. So are keys of one slot while it moves from node to node, if
//!          neither has all of them. Then others may be denied for that moment what is given
//!          back after it, and who dies in that moment has charged what nobody used: never the other way round.
//! Always   A denial stays one, whoever does not answer after it.
//! Always   Whoever is denied is remembered, as by who asks alone; and what the others have left, for who is denied again.
//! Always   All of it has one deadline, the longest of its limits'. What is given back is given back by itself: for longer
//!          than that nobody waits for it, and who stops waiting earlier has charged nothing.

use crate::cache::SentAt;
use crate::connection::{Deadline, Link, StoreError};
use crate::limiter::{Inner, RedisLimiter};
use crate::remote::rule_registry::Current;
use crate::script;
use crate::script::codec::{Answer, Said, Verb};
use redis::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use tidegate::{Decision, Joint};
use tidegate_core::{Span, Timestamp};
use tokio::task::JoinHandle;
use tokio::time::Instant;

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
pub(crate) struct Sum<'a> {
    pub(crate) inner: &'a Arc<Inner>,
    pub(crate) subject: &'a [u8],
    key: Vec<u8>,
    pub(crate) cost: u64,
}

/// What is asked of each state, and in which of these sums each ask is.
#[derive(Debug)]
pub(crate) struct Sums<'a> {
    pub(crate) each: Vec<Sum<'a>>,
    pub(crate) places: Vec<usize>,
}

/// What was charged to one state.
#[derive(Debug)]
struct Charge {
    inner: Arc<Inner>,
    subject: Vec<u8>,
    cost: u64,
    /// The place that was taken, and since when: it is not known by its cost.
    place: Option<(u64, Timestamp)>,
    /// From then on it may have drained, or its window may be over: then it would be somebody else's that is given back. Not
    /// before Redis says so, since it has decided after it was asked.
    drained: Option<Instant>,
}

/// A decision on several, and by what answers.
#[derive(Debug)]
struct Decided {
    is_charged: bool,
    each: Vec<Decision>,
    answered: Vec<Answered>,
}

/// What a joint decision has charged so far. Unless it is kept, it is given back.
#[derive(Debug, Default)]
pub(crate) struct Charged {
    each: Vec<Charge>,
}

/// A sum that was answered.
#[derive(Debug)]
struct Answered {
    current: Arc<Current>,
    answer: Answer,
}

/// The deadline of requests that come now, for all that is done for them.
pub(crate) fn within(asks: &[JointAsk<'_>]) -> Deadline {
    let longest = asks.iter().map(|ask| ask.limiter.inner.exact.deadline()).max();
    Deadline::from(longest.unwrap_or_default())
}

/// Decides several requests as one: all are charged, or none is. The caller may give it back.
pub(crate) async fn charge_all(
    all: &Sums<'_>,
    deadline: Deadline,
) -> Result<(Joint, Charged), StoreError> {
    let decided = charge_slots(all, deadline).await;
    for Sum { inner, subject, .. } in &all.each {
        match &decided {
            Ok(_) => inner.health.answered(),
            Err(error) => inner.missed(subject, error),
        }
    }
    decided
}

async fn charge_slots(all: &Sums<'_>, deadline: Deadline) -> Result<(Joint, Charged), StoreError> {
    let mut charged = Charged::default();
    let sums = &all.each;
    let Some(first) = sums.first() else { return Ok((Joint::of(Vec::new()), charged)) };
    let has_slots = first.inner.exact.store().link.has_slots();
    let slot = |sum: &Sum<'_>| if has_slots { Link::slot(&sum.key) } else { 0 };
    let mut order: Vec<usize> = (0..sums.len()).collect();
    order.sort_by_key(|place| slot(&sums[*place]));
    let mut decisions: Vec<Option<Decision>> = vec![None; sums.len()];
    let groups = order.chunk_by(|a, b| slot(&sums[*a]) == slot(&sums[*b]));
    let mut groups: VecDeque<Vec<usize>> = groups.map(<[usize]>::to_vec).collect();
    while let Some(group) = groups.pop_front() {
        let together: Vec<&Sum<'_>> = group.iter().map(|place| &sums[*place]).collect();
        let asked: Vec<SentAt> = together.iter().map(|sum| sum.inner.denied.now()).collect();
        let sent = Instant::now();
        let decided = decide(&together, deadline).await;
        if group.len() > 1 && decided.as_ref().is_err_and(StoreError::is_slot_moving) {
            // Neither node has all of these keys, until the slot has moved: each is decided as if it had its own slot.
            group.iter().rev().for_each(|place| groups.push_front(vec![*place]));
            continue;
        }
        let is_charged = decided.as_ref().is_ok_and(|decided| decided.is_charged);
        if !is_charged {
            std::mem::take(&mut charged).give_back(deadline).await;
            decisions.fill(None);
        }
        let decided = decided?;
        for (place, decision) in group.iter().zip(&decided.each) {
            decisions[*place] = Some(*decision);
        }
        if !is_charged {
            remember(&together, &decided, &asked);
            break;
        }
        let answered = together.into_iter().zip(&decided.answered);
        charged.each.extend(answered.map(|one| Charge::of(one, sent)));
    }
    let asked: Vec<Subject<'_>> = sums.iter().map(|sum| (&**sum.inner, sum.subject)).collect();
    let decisions = has_left(&asked, decisions, deadline).await;
    Ok((all.joint(&decisions), charged))
}

impl<'a> Sums<'a> {
    /// A state is known by its key in Redis: several limiters may have one name.
    pub(crate) fn of(asks: &[JointAsk<'a>]) -> Self {
        let mut each: Vec<Sum<'a>> = Vec::with_capacity(asks.len());
        let mut places = Vec::with_capacity(asks.len());
        for ask in asks {
            let (inner, subject, cost) = (&ask.limiter.inner, ask.key, ask.cost);
            let key = inner.exact.key(subject);
            if let Some(place) = each.iter().position(|sum| sum.key == key) {
                // More than can be said is more than can be admitted.
                each[place].cost = each[place].cost.saturating_add(cost);
                places.push(place);
            } else {
                places.push(each.len());
                each.push(Sum { inner, subject, key, cost });
            }
        }
        Self { each, places }
    }

    /// What each ask is told, where this is what each sum is told.
    pub(crate) fn joint(&self, decisions: &[Decision]) -> Joint {
        Joint::of(self.places.iter().map(|place| decisions[*place]).collect())
    }
}

/// Whoever was denied by Redis need not ask again to hear it, and hears what the others had.
fn remember(sums: &[&Sum<'_>], decided: &Decided, asked: &[SentAt]) {
    let answers = decided.answered.iter().zip(&decided.each);
    for ((sum, asked), (answered, decision)) in sums.iter().zip(asked).zip(answers) {
        let Answered { current, answer } = answered;
        if !decision.is_deny() {
            sum.inner.left.put(sum.subject, answer.clone(), current.version, *asked);
        } else if !current.rule.is_concurrency() {
            let known = (answer.clone(), decision);
            sum.inner.denied.put(sum.subject, known, current.version, sum.cost, *asked);
        }
    }
}

/// Decides those of one slot in one script: whether all are charged, and each decision.
async fn decide(sums: &[&Sum<'_>], deadline: Deadline) -> Result<Decided, StoreError> {
    let first = sums.first().expect("a group has somebody");
    let first = &first.inner.exact;
    for _ in 0..ROUNDS_MAX {
        let Some((is_charged, answered)) = ask(sums, deadline).await? else { continue };
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
        let each = each.map_err(|strange| first.strange(&strange))?;
        return Ok(Decided { is_charged, each, answered });
    }
    Err(first.malformed("states of yet other versions of the rules, again and again".to_owned()))
}

/// Asks once. Nothing, if a state had to be brought to its rule first.
async fn ask(
    sums: &[&Sum<'_>],
    deadline: Deadline,
) -> Result<Option<(bool, Vec<Answered>)>, StoreError> {
    let first = sums.first().expect("a group has somebody");
    let first = &first.inner.exact;
    let store = first.store();
    let mut currents = Vec::with_capacity(sums.len());
    // The first two are not used here.
    let mut args = vec![Vec::new(), Vec::new()];
    for sum in sums {
        currents.push(sum.inner.exact.known(deadline).await?);
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
                sum.inner.exact.reconcile(deadline, &sum.key, &value, &current).await?;
                is_settled = false;
            }
        }
    }
    Ok(is_settled.then_some((can_pass && *is_charged == 1, answered)))
}

impl Charge {
    fn of((sum, answered): (&Sum<'_>, &Answered), sent: Instant) -> Self {
        let ticket = answered.answer.ticket.filter(|_| sum.cost > 0);
        let place = ticket.map(|ticket| (ticket, answered.answer.now()));
        let (inner, subject) = (Arc::clone(sum.inner), sum.subject.to_vec());
        let taken = answered.current.shared.decision(&answered.answer, Verb::Take, sum.cost);
        let resets = taken.map_or(Span::ZERO, |taken| taken.reset_after).as_duration();
        let drained = sent.checked_add(resets);
        Self { inner, subject, cost: sum.cost, place, drained }
    }

    async fn give_back(self) {
        let Self { inner, subject, cost, place, drained } = self;
        if let Some(place) = place {
            // Who does not hear of it is told again.
            let _ = inner.give_back(&subject, place).await;
        } else if drained.is_none_or(|drained| Instant::now() < drained) {
            // What cannot be given back stays charged until it has drained.
            if let Err(error) = inner.exact.ask(&subject, Verb::Refund, cost, None).await {
                inner.tally.kept(inner.exact.name(), &error);
            }
        }
        // Whoever was denied for that moment is not denied any more. Without an answer it may have been given back too.
        inner.forget(&subject);
    }
}

impl Charged {
    /// It stays charged.
    pub(crate) fn keep(mut self) {
        self.each.clear();
    }

    /// Gives it back, and waits until it is, for as long as there is time.
    pub(crate) async fn give_back(mut self, deadline: Deadline) {
        let given = self.send_back();
        let all = async {
            for one in given {
                // Who panics or is stopped with its runtime gives nothing back; nobody can do it instead.
                let _ = one.await;
            }
        };
        let _ = deadline.cut(all).await;
    }

    fn send_back(&mut self) -> Vec<JoinHandle<()>> {
        let send = |charge: Charge| {
            let runtime = charge.inner.exact.store().runtime.clone();
            runtime.spawn(charge.give_back())
        };
        self.each.drain(..).map(send).collect()
    }
}

impl Drop for Charged {
    /// Whoever stops waiting in the middle of it has not decided anything.
    fn drop(&mut self) {
        drop(self.send_back());
    }
}

/// Who is asked what is left, and of whom.
pub(crate) type Subject<'a> = (&'a Inner, &'a [u8]);

/// Those who were not asked, or were given back, say what they have. It is denied already: so who does not answer
/// changes nothing, and nobody waits for a second one.
pub(crate) async fn has_left(
    asked: &[Subject<'_>],
    decisions: Vec<Option<Decision>>,
    deadline: Deadline,
) -> Vec<Decision> {
    let mut is_answered = true;
    let mut each = Vec::with_capacity(asked.len());
    for ((inner, subject), decision) in asked.iter().zip(decisions) {
        let mut left = decision;
        if left.is_none() && is_answered {
            let asked = inner.denied.now();
            let looked = inner.exact.ask_within(deadline, subject, Verb::Look, 0, None).await;
            is_answered = looked.is_ok();
            left = looked.ok().map(|looked| {
                inner.left.put(subject, looked.answer, looked.version, asked);
                looked.decision
            });
        }
        each.push(left.unwrap_or_else(|| inner.exact.unknown()));
    }
    each
}
