//! Decides several requests as one, all charged or none, with or without Redis.
//!
//! Invariant  Without Redis every limit's policy decides, and the strictest wins: all shares of this node are charged, or none. So
//!            a request that one limit denies is not charged to another.
//! Invariant  After an outage, until a key has recovered from what was admitted without Redis, both Redis and the share must admit
//!            the request.

mod charge;

use crate::connection::{Deadline, RedisStoreError};
use crate::limiter::RedisRequest;
use charge::{CombinedRequests, PendingCharges, Subject, charge_all, complete};
use std::collections::HashSet;
use std::sync::Arc;
use tidegate::{Decision, Joint, Request, SystemClock};

/// Decides several requests as one: all are charged, or none is. All limits are of one store.
///
/// It always returns a decision: if Redis does not answer, the limits' [`OnError`](crate::OnError) decides.
///
/// ```no_run
/// # async fn example(user: tidegate_redis::RedisLimiter, site: tidegate_redis::RedisLimiter) {
/// use tidegate_redis::check_all;
///
/// let joint = check_all([user.request("alice"), site.request("alice").cost(2)]).await;
/// println!("{:?}", joint.decision);
/// # }
/// ```
pub async fn check_all<'a>(requests: impl IntoIterator<Item = RedisRequest<'a>>) -> Joint {
    let requests: Vec<RedisRequest<'a>> = requests.into_iter().collect();
    let fixed = zero_rule_decisions(&requests);
    let is_denied = is_any_denied(&fixed);
    for (request, decision) in requests.iter().zip(&fixed) {
        if let Some(decision) = decision.filter(|decision| !is_denied || decision.is_deny()) {
            request.limiter.inner.counters.decided(&decision);
        }
    }
    let joint = if is_denied {
        complete_joint(&requests, fixed, charge::start_deadline(&requests)).await
    } else {
        let joint = check_open(&open_requests(&requests, &fixed)).await;
        merged(fixed, joint)
    };
    deny_long_waits(&requests, joint).await
}

/// Decides as [`check_all`] does, for callers with a policy of their own.
///
/// # Errors
/// Redis does not answer.
///
/// ```no_run
/// # async fn example(user: tidegate_redis::RedisLimiter, site: tidegate_redis::RedisLimiter)
/// # -> Result<(), tidegate_redis::RedisStoreError> {
/// use tidegate_redis::try_check_all;
///
/// let joint = try_check_all([user.request("alice"), site.request("alice")]).await?;
/// println!("{:?}", joint.decision);
/// # Ok(())
/// # }
/// ```
pub async fn try_check_all<'a>(
    requests: impl IntoIterator<Item = RedisRequest<'a>>,
) -> Result<Joint, RedisStoreError> {
    let requests: Vec<RedisRequest<'a>> = requests.into_iter().collect();
    let (fixed, deadline) = (zero_rule_decisions(&requests), charge::start_deadline(&requests));
    let joint = if is_any_denied(&fixed) {
        complete_joint(&requests, fixed, deadline).await
    } else {
        let open = open_requests(&requests, &fixed);
        let joint = check_in_redis(&open, &CombinedRequests::of(&open), deadline).await?;
        merged(fixed, joint)
    };
    Ok(deny_long_waits(&requests, joint).await)
}

/// Returns the decisions of rules that admit nothing, which need no store; `None` for the other requests.
fn zero_rule_decisions(requests: &[RedisRequest<'_>]) -> Vec<Option<Decision>> {
    let decision =
        |request: &RedisRequest<'_>| request.limiter.inner.remote.zero_rule_decision(request.cost);
    requests.iter().map(decision).collect()
}

fn is_any_denied(decisions: &[Option<Decision>]) -> bool {
    decisions.iter().flatten().any(Decision::is_deny)
}

/// Returns the requests that the store decides.
fn open_requests<'a>(
    requests: &[RedisRequest<'a>],
    fixed: &[Option<Decision>],
) -> Vec<RedisRequest<'a>> {
    let each = requests.iter().zip(fixed);
    each.filter(|(_, decision)| decision.is_none()).map(|(request, _)| *request).collect()
}

/// Returns all decisions, in the order of the requests.
fn merged(fixed: Vec<Option<Decision>>, open: Joint) -> Joint {
    let mut open = open.each.into_iter();
    Joint::of(fixed.into_iter().filter_map(|decision| decision.or_else(|| open.next())).collect())
}

/// Denies all requests if one of them would have to wait longer than it may, and refunds them: Redis decides without
/// knowing how long a request may wait.
async fn deny_long_waits(requests: &[RedisRequest<'_>], joint: Joint) -> Joint {
    let too_long = |(request, decision): (&RedisRequest<'_>, &Decision)| {
        request.too_long(decision).map(|denied| denied.decision)
    };
    let denied: Vec<Option<Decision>> = requests.iter().zip(&joint.each).map(too_long).collect();
    if joint.decision.is_deny() || denied.iter().all(Option::is_none) {
        return joint;
    }
    for request in requests {
        // After an error the charge drains.
        let _ = request.limiter.refund(request.key, request.cost).await;
    }
    let each = joint.each.into_iter().zip(denied);
    Joint::of(each.map(|(decision, denied)| denied.unwrap_or(decision)).collect())
}

/// Decides requests that are all for the store.
async fn check_open(requests: &[RedisRequest<'_>]) -> Joint {
    let (combined, deadline) = (CombinedRequests::of(requests), charge::start_deadline(requests));
    if let Some(joint) = cached_denial(requests, &combined, deadline).await {
        return joint;
    }
    let joint = check_in_redis(requests, &combined, deadline).await;
    let joint = joint.unwrap_or_else(|error| check_without_redis(requests, &error));
    let is_denied = joint.decision.is_deny();
    for (request, decision) in requests.iter().zip(&joint.each) {
        // If another limit denies, this one has admitted nothing.
        if !is_denied || decision.is_deny() {
            request.limiter.inner.counters.decided(decision);
        }
    }
    joint
}

/// Decides in Redis, and after an outage by the shares too.
async fn check_in_redis(
    requests: &[RedisRequest<'_>],
    combined: &CombinedRequests<'_>,
    deadline: Deadline,
) -> Result<Joint, RedisStoreError> {
    if let Some(denied) = share_denials(requests) {
        return Ok(complete_joint(requests, denied, deadline).await);
    }
    let (joint, charges) = charge_all(combined, deadline).await?;
    if joint.decision.is_deny() {
        for (request, decision) in requests.iter().zip(&joint.each) {
            request.limiter.inner.fallback.learn_remaining(request.key, decision);
        }
        return Ok(joint);
    }
    Ok(confirm(requests, joint, charges, deadline).await)
}

/// Decides by cached denials. The other limits report what the cache knows, and Redis is asked about the rest.
async fn cached_denial(
    requests: &[RedisRequest<'_>],
    combined: &CombinedRequests<'_>,
    deadline: Deadline,
) -> Option<Joint> {
    let states = combined.each.iter();
    let denied: Vec<Option<Decision>> =
        states.map(|one| one.inner.peek_denial_cache(one.subject, one.cost)).collect();
    if denied.iter().all(Option::is_none) {
        return None;
    }
    let known = combined.each.iter().zip(&denied);
    let known =
        known.map(|(one, denied)| denied.or_else(|| one.inner.cached_remaining(one.subject)));
    let decisions = complete(&combined.subjects(), known.collect(), deadline).await;
    let joint = combined.joint(&decisions);
    for ((request, index), decision) in requests.iter().zip(&combined.indices).zip(&joint.each) {
        let counters = &request.limiter.inner.counters;
        // The limits that do not deny have admitted nothing.
        if denied[*index].is_some() {
            counters.denied_by_cache();
        } else if decision.is_deny() {
            counters.decided(decision);
        }
    }
    Some(joint)
}

/// Returns the denials of the shares of keys with a debt of which Redis does not know, if there are any.
fn share_denials(requests: &[RedisRequest<'_>]) -> Option<Vec<Option<Decision>>> {
    let denial = |request: &RedisRequest<'_>| {
        let same = requests.iter().filter(|other| is_same_key(request, other));
        let cost = same.fold(0, |sum: u64, other| sum.saturating_add(other.cost));
        request.limiter.inner.fallback.still_denies(request.key, cost)
    };
    let denied: Vec<Option<Decision>> = requests.iter().map(denial).collect();
    // During the outage itself the request fails, and is counted as a failure.
    let is_up = |request: &RedisRequest<'_>| request.limiter.inner.remote.is_up(request.key);
    (denied.iter().any(Option::is_some) && requests.iter().all(is_up)).then_some(denied)
}

/// Returns whether both requests are about one key of one limit.
fn is_same_key(one: &RedisRequest<'_>, other: &RedisRequest<'_>) -> bool {
    Arc::ptr_eq(&one.limiter.inner, &other.limiter.inner) && one.key == other.key
}

/// Completes the decisions of a denial: limits that have not decided report what they have remaining.
async fn complete_joint(
    requests: &[RedisRequest<'_>],
    decisions: Vec<Option<Decision>>,
    deadline: Deadline,
) -> Joint {
    let subjects: Vec<Subject<'_>> =
        requests.iter().map(|request| (&*request.limiter.inner, request.key)).collect();
    Joint::of(complete(&subjects, decisions, deadline).await)
}

/// Charges the shares for what Redis has admitted. After an outage all shares must admit it; else none is charged, and Redis is
/// refunded.
async fn confirm(
    requests: &[RedisRequest<'_>],
    joint: Joint,
    charges: PendingCharges,
    deadline: Deadline,
) -> Joint {
    let share_request = |request: &RedisRequest<'_>| {
        let share = request.limiter.inner.fallback.confirming_share(request.key);
        share.map(|share| share.request(request.key).cost(request.cost))
    };
    let shares: Vec<Option<Request<SystemClock>>> = requests.iter().map(share_request).collect();
    let is_needed: Vec<bool> = shares.iter().map(Option::is_some).collect();
    let confirmed = tidegate::check_all(shares.into_iter().flatten());
    if !confirmed.decision.is_deny() {
        let decided = requests.iter().zip(&joint.each).zip(is_needed);
        for ((request, decision), _) in decided.filter(|(_, is_needed)| !is_needed) {
            let _ = request.limiter.inner.fallback.confirm(request.key, request.cost, *decision);
        }
        charges.keep();
        return joint;
    }
    charges.refund(deadline).await;
    let mut confirmed = confirmed.each.into_iter();
    let decisions =
        is_needed.iter().map(|is_needed| is_needed.then(|| confirmed.next()).flatten()).collect();
    complete_joint(requests, decisions, deadline).await
}

fn check_without_redis(requests: &[RedisRequest<'_>], error: &RedisStoreError) -> Joint {
    let mut counted = HashSet::new();
    for request in requests {
        let inner = &request.limiter.inner;
        // A joint request is one failure of each limit, however many of its keys it names.
        if counted.insert(inner.remote.name()) {
            inner.counters.failed(inner.remote.name(), error);
        }
    }
    let mut shares = check_shares(requests).into_iter();
    let decision = |request: &RedisRequest<'_>| {
        let fallback = &request.limiter.inner.fallback;
        let decision = fallback.share().and_then(|_| shares.next());
        decision.unwrap_or_else(|| fallback.policy_decision())
    };
    let joint = Joint::of(requests.iter().map(decision).collect());
    if !joint.decision.is_deny() {
        for (request, decision) in requests.iter().zip(&joint.each) {
            request.limiter.inner.fallback.remember(request.key, request.cost, decision);
        }
    }
    joint
}

/// Returns the decisions of this node's shares: all are charged, or none, and none if a limit without a share denies.
fn check_shares(requests: &[RedisRequest<'_>]) -> Vec<Decision> {
    let is_denied = requests.iter().any(|request| {
        let fallback = &request.limiter.inner.fallback;
        fallback.share().is_none() && fallback.policy_decision().is_deny()
    });
    let share = |request: &RedisRequest<'_>| -> Option<Request<SystemClock>> {
        let share = request.limiter.inner.fallback.share()?;
        Some(share.request(request.key).cost(if is_denied { 0 } else { request.cost }))
    };
    let shares = requests.iter().filter_map(share);
    if is_denied {
        return shares.map(Request::peek).collect();
    }
    tidegate::check_all(shares).each
}
