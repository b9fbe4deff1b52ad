//! Decides several requests as one in Redis: all are charged, or none (A13).
//!
//! Invariant  Keys of one slot are decided in one script, atomically. On a single server all keys are in one slot; in a cluster,
//!            the keys of one subject are.
//! Invariant  Keys of several slots are charged slot by slot. If a slot denies or does not answer, the charges before it are
//!            refunded. The same applies to keys of one slot while it is being moved. Other requests may be denied until then, and
//!            a killed node leaves its charges behind, but no extra request is admitted.
//! Invariant  A denial stays a denial, even if Redis does not answer afterwards.
//! Invariant  All steps have one deadline, the longest of the limits'. Refunds run in the background, so a cancelled request has
//!            charged nothing in the end.

use crate::cache::SentAt;
use crate::connection::{Deadline, RedisStoreError, Servers};
use crate::limiter::{LimitContext, RedisRequest};
use crate::remote::ATTEMPTS_MAX;
use crate::remote::rule_registry::CurrentRule;
use crate::script;
use crate::script::codec::{Operation, ScriptDecision, ScriptReply};
use redis::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use tidegate::{Decision, Joint};
use tidegate_core::{Span, Timestamp};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The total cost of all requests about one key of one limit.
#[derive(Debug)]
pub(crate) struct CombinedRequest<'a> {
    pub(crate) inner: &'a Arc<LimitContext>,
    pub(crate) subject: &'a [u8],
    key: Vec<u8>,
    pub(crate) cost: u64,
}

/// The combined requests, and for each request the index of its combined request.
#[derive(Debug)]
pub(crate) struct CombinedRequests<'a> {
    pub(crate) each: Vec<CombinedRequest<'a>>,
    pub(crate) indices: Vec<usize>,
}

/// A key of a limit.
pub(crate) type Subject<'a> = (&'a LimitContext, &'a [u8]);

/// What one key was charged.
#[derive(Debug)]
struct Charge {
    inner: Arc<LimitContext>,
    subject: Vec<u8>,
    cost: u64,
    /// The permit that was acquired: its ticket, and since when it is held.
    permit: Option<(u64, Timestamp)>,
    /// From then on the charge may have drained, or its window ended, so that a refund would refund other requests.
    drained: Option<Instant>,
}

/// What a joint decision has charged so far. Unless it is kept, it is refunded.
#[derive(Debug, Default)]
pub(crate) struct PendingCharges {
    each: Vec<Charge>,
}

/// The decisions of one slot, and the answers from which they were computed.
#[derive(Debug)]
struct SlotDecision {
    is_charged: bool,
    each: Vec<Decision>,
    answers: Vec<KeyAnswer>,
}

#[derive(Debug)]
struct KeyAnswer {
    current: Arc<CurrentRule>,
    answer: ScriptDecision,
}

/// Starts the deadline of a joint request: the longest of its limits'.
pub(crate) fn start_deadline(requests: &[RedisRequest<'_>]) -> Deadline {
    let deadlines = requests.iter().map(|request| request.limiter.inner.remote.deadline());
    Deadline::from(deadlines.max().unwrap_or_default())
}

/// Decides several requests as one: all are charged, or none. The caller may refund the charges.
pub(crate) async fn charge_all(
    requests: &CombinedRequests<'_>,
    deadline: Deadline,
) -> Result<(Joint, PendingCharges), RedisStoreError> {
    let charged = charge_slots(requests, deadline).await;
    for CombinedRequest { inner, subject, .. } in &requests.each {
        match &charged {
            Ok(_) => inner.health.answered(),
            Err(error) => inner.note_failure(subject, error),
        }
    }
    charged
}

async fn charge_slots(
    requests: &CombinedRequests<'_>,
    deadline: Deadline,
) -> Result<(Joint, PendingCharges), RedisStoreError> {
    let mut charges = PendingCharges::default();
    let each = &requests.each;
    let Some(first) = each.first() else { return Ok((Joint::of(Vec::new()), charges)) };
    let has_slots = first.inner.remote.runner().servers.has_slots();
    let slot = |index: &usize| if has_slots { Servers::slot(&each[*index].key) } else { 0 };
    let mut order: Vec<usize> = (0..each.len()).collect();
    order.sort_by_key(slot);
    let mut decisions: Vec<Option<Decision>> = vec![None; each.len()];
    let groups = order.chunk_by(|a, b| slot(a) == slot(b));
    let mut groups: VecDeque<Vec<usize>> = groups.map(<[usize]>::to_vec).collect();
    while let Some(group) = groups.pop_front() {
        let members: Vec<&CombinedRequest<'_>> = group.iter().map(|index| &each[*index]).collect();
        let sent: Vec<SentAt> = members.iter().map(|one| one.inner.denial_cache.now()).collect();
        let sent_at = Instant::now();
        let decided = decide_slot(&members, deadline).await;
        if group.len() > 1 && decided.as_ref().is_err_and(RedisStoreError::is_slot_moving) {
            // Neither node has all of these keys until the slot has moved: each is decided as if it had its own slot.
            group.iter().rev().for_each(|index| groups.push_front(vec![*index]));
            continue;
        }
        let is_charged = decided.as_ref().is_ok_and(|decided| decided.is_charged);
        if !is_charged {
            std::mem::take(&mut charges).refund(deadline).await;
            decisions.fill(None);
        }
        let decided = decided?;
        for (index, decision) in group.iter().zip(&decided.each) {
            decisions[*index] = Some(*decision);
        }
        if !is_charged {
            cache(&members, &decided, &sent);
            break;
        }
        let answers = members.into_iter().zip(&decided.answers);
        charges.each.extend(answers.map(|(one, answer)| Charge::new(one, answer, sent_at)));
    }
    let decisions = complete(&requests.subjects(), decisions, deadline).await;
    Ok((requests.joint(&decisions), charges))
}

impl<'a> CombinedRequests<'a> {
    /// Combines requests with the same key in Redis: several limiters may have the same name.
    pub(crate) fn of(requests: &[RedisRequest<'a>]) -> Self {
        let mut each: Vec<CombinedRequest<'a>> = Vec::with_capacity(requests.len());
        let mut indices = Vec::with_capacity(requests.len());
        for request in requests {
            let (inner, subject, cost) = (&request.limiter.inner, request.key, request.cost);
            let key = inner.remote.key(subject);
            if let Some(index) = each.iter().position(|other| other.key == key) {
                each[index].cost = each[index].cost.saturating_add(cost);
                indices.push(index);
            } else {
                indices.push(each.len());
                each.push(CombinedRequest { inner, subject, key, cost });
            }
        }
        Self { each, indices }
    }

    pub(crate) fn subjects(&self) -> Vec<Subject<'a>> {
        self.each.iter().map(|one| (&**one.inner, one.subject)).collect()
    }

    /// Returns the decision about each request, given that about each combined request.
    pub(crate) fn joint(&self, decisions: &[Decision]) -> Joint {
        Joint::of(self.indices.iter().map(|index| decisions[*index]).collect())
    }
}

/// Caches the denials, and what the other keys have remaining.
fn cache(requests: &[&CombinedRequest<'_>], decided: &SlotDecision, sent: &[SentAt]) {
    let answers = decided.answers.iter().zip(&decided.each);
    for ((one, sent), (KeyAnswer { current, answer }, decision)) in
        requests.iter().zip(sent).zip(answers)
    {
        let inner = one.inner;
        if !decision.is_deny() {
            inner.remaining_cache.put(one.subject, answer.clone(), current.version, *sent);
        } else if !current.rule.is_concurrency() {
            let denial = (answer.clone(), decision);
            inner.denial_cache.put(one.subject, denial, current.version, one.cost, *sent);
        }
    }
}

/// Decides the requests of one slot in one script.
async fn decide_slot(
    requests: &[&CombinedRequest<'_>],
    deadline: Deadline,
) -> Result<SlotDecision, RedisStoreError> {
    let remote = &requests.first().expect("a slot has a request").inner.remote;
    for _ in 0..ATTEMPTS_MAX {
        let Some((is_charged, answers)) = run_script(requests, deadline).await? else { continue };
        let decision = |(one, answer): (&&CombinedRequest<'_>, &KeyAnswer)| {
            let codec = &answer.current.codec;
            let decide = |operation, cost| codec.decision(&answer.answer, operation, cost);
            // A cost that cannot be sent is denied.
            if is_charged || !codec.is_sendable(one.cost) {
                return decide(Operation::Charge, one.cost);
            }
            let peeked = decide(Operation::Peek, one.cost)?;
            if peeked.is_deny() || !answer.answer.is_charged() {
                Ok(peeked)
            } else {
                decide(Operation::Peek, 0)
            }
        };
        let each: Result<Vec<Decision>, _> = requests.iter().zip(&answers).map(decision).collect();
        let each = each.map_err(|malformed| remote.unexpected(&malformed))?;
        return Ok(SlotDecision { is_charged, each, answers });
    }
    Err(remote.changes_too_often())
}

/// Runs the script once. Returns `None` if a state had to be converted to the current rule first.
async fn run_script(
    requests: &[&CombinedRequest<'_>],
    deadline: Deadline,
) -> Result<Option<(bool, Vec<KeyAnswer>)>, RedisStoreError> {
    let first = &requests.first().expect("a slot has a request").inner.remote;
    let runner = first.runner();
    let mut currents = Vec::with_capacity(requests.len());
    for one in requests {
        currents.push(one.inner.remote.current_rule(deadline).await?);
    }
    // If a cost cannot be sent, the joint request is denied, and nothing must be charged.
    let is_sendable = |(one, current): (&&CombinedRequest<'_>, &Arc<CurrentRule>)| {
        current.codec.is_sendable(one.cost)
    };
    let can_pass = requests.iter().zip(&currents).all(is_sendable);
    let operation = if can_pass { Operation::Charge } else { Operation::Peek };
    // The first two arguments are not used by this script.
    let mut args = vec![Vec::new(), Vec::new()];
    for (one, current) in requests.iter().zip(&currents) {
        let codec = &current.codec;
        args.push(codec.stem().into());
        args.push(codec.args(operation, one.cost, runner.clock.estimate()));
        args.push(codec.fresh().to_vec());
    }
    let keys = requests.iter().map(|one| one.key.clone()).collect();
    let reply = runner.run(&script::DECIDE_ALL, keys, args, deadline).await?;
    let Value::Array(reply) = reply else { return Err(first.malformed(format!("{reply:?}"))) };
    let Some((Value::Int(is_charged), replies)) = reply.split_first() else {
        return Err(first.malformed("no answer to several requests".to_owned()));
    };
    let mut answers = Vec::with_capacity(requests.len());
    let mut is_complete = replies.len() == requests.len();
    for ((one, current), value) in requests.iter().zip(currents).zip(replies) {
        let remote = &one.inner.remote;
        match current.codec.read(value).map_err(|malformed| remote.unexpected(&malformed))? {
            ScriptReply::Decision(answer) => answers.push(KeyAnswer { current, answer }),
            ScriptReply::OtherTime(now) => {
                runner.clock.synchronize(now);
                is_complete = false;
            }
            ScriptReply::OtherVersion(value) => {
                remote.reconcile(deadline, &one.key, &value, &current).await?;
                is_complete = false;
            }
        }
    }
    Ok(is_complete.then_some((can_pass && *is_charged == 1, answers)))
}

impl Charge {
    fn new(
        one: &CombinedRequest<'_>,
        KeyAnswer { current, answer }: &KeyAnswer,
        sent: Instant,
    ) -> Self {
        let ticket = answer.ticket.filter(|_| one.cost > 0);
        let permit = ticket.map(|ticket| (ticket, answer.now()));
        let (inner, subject) = (Arc::clone(one.inner), one.subject.to_vec());
        let charged = current.codec.decision(answer, Operation::Charge, one.cost);
        let resets = charged.map_or(Span::ZERO, |charged| charged.reset_after).as_duration();
        Self { inner, subject, cost: one.cost, permit, drained: sent.checked_add(resets) }
    }

    async fn refund(self) {
        let Self { inner, subject, cost, permit, drained } = self;
        if let Some(permit) = permit {
            // After an error the release is sent again in the background.
            let _ = inner.releases.release(&subject, permit).await;
        } else if drained.is_none_or(|drained| Instant::now() < drained) {
            // After an error the charge drains.
            if let Err(error) = inner.remote.run(&subject, Operation::Refund, cost, None).await {
                inner.counters.refund_failed(inner.remote.name(), &error);
            }
        }
        // Also after an error: the refund may have been made, and the key may not be denied any more.
        inner.forget(&subject);
    }
}

impl PendingCharges {
    /// Keeps the charges.
    pub(crate) fn keep(mut self) {
        self.each.clear();
    }

    /// Refunds the charges, and waits for that at most until the deadline.
    pub(crate) async fn refund(mut self, deadline: Deadline) {
        let refunds = self.start_refunds();
        let all = async {
            for refund in refunds {
                // An error means that the runtime has ended; then the charge drains.
                let _ = refund.await;
            }
        };
        let _ = deadline.bound(all).await;
    }

    fn start_refunds(&mut self) -> Vec<JoinHandle<()>> {
        let start = |charge: Charge| {
            let runtime = charge.inner.runtime().clone();
            runtime.spawn(charge.refund())
        };
        self.each.drain(..).map(start).collect()
    }
}

impl Drop for PendingCharges {
    /// Refunds a joint decision that was cancelled.
    fn drop(&mut self) {
        drop(self.start_refunds());
    }
}

/// Completes the decisions of a denial: keys without a decision report what they have remaining. After one of them does not answer,
/// the others are not asked.
pub(crate) async fn complete(
    subjects: &[Subject<'_>],
    decisions: Vec<Option<Decision>>,
    deadline: Deadline,
) -> Vec<Decision> {
    let mut is_answered = true;
    let mut each = Vec::with_capacity(subjects.len());
    for ((inner, subject), decision) in subjects.iter().zip(decisions) {
        let mut decision = decision;
        if decision.is_none() && is_answered {
            let sent = inner.denial_cache.now();
            let seen = inner.remote.run_within(deadline, subject, Operation::Peek, 0, None).await;
            is_answered = seen.is_ok();
            decision = seen.ok().map(|seen| {
                inner.remaining_cache.put(subject, seen.answer, seen.version, sent);
                seen.decision
            });
        }
        each.push(decision.unwrap_or_else(|| inner.remote.unknown_state()));
    }
    each
}
