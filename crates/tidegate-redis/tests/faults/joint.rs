//! T32: joint decisions about several slots, of which one does not answer, or answers late.

use crate::cluster::{address, counts};
use crate::stage::{PATIENT, TIMEOUT, becomes, limiter_with, ready, store_at};
use std::time::Duration;
use tidegate_redis::{
    DecisionSource, OnError, RedisLimiter, RedisRequest, Settings, check_all, try_check_all,
};
use tidegate_testbed::{Cluster, RedisServer};
use tokio::time::{Instant, sleep};

/// How late a timer may be on a busy machine.
const SLACK: Duration = Duration::from_millis(150);

/// Returns keys of two primaries in the order of their slots, and the primary of the second.
fn first_and_second(cluster: &Cluster) -> (String, String, &RedisServer) {
    let key = |number: u32| format!("key-{number}");
    let place = |key: &str| {
        let slot = cluster.slot_of(&format!("tg:{{{key}}}:joint"));
        (slot, cluster.primary_of_slot(slot))
    };
    let first = key(0);
    let (slot, primary) = place(&first);
    for number in 1..100 {
        let second = key(number);
        let (other_slot, other) = place(&second);
        if other.port() != primary.port() {
            return if slot < other_slot {
                (first, second, other)
            } else {
                (second, first, primary)
            };
        }
    }
    panic!("all keys have one primary");
}

/// Returns a key of each primary, in the order of their slots.
fn one_of_each(cluster: &Cluster) -> Vec<(String, &RedisServer)> {
    let mut found: Vec<(u16, String, &RedisServer)> = Vec::new();
    for number in 0..100 {
        let key = format!("key-{number}");
        let slot = cluster.slot_of(&format!("tg:{{{key}}}:joint"));
        let primary = cluster.primary_of_slot(slot);
        if found.iter().all(|(_, _, known)| known.port() != primary.port()) {
            found.push((slot, key, primary));
        }
    }
    found.sort_by_key(|(slot, ..)| *slot);
    found.into_iter().map(|(_, key, primary)| (key, primary)).collect()
}

async fn limiter_of(cluster: &Cluster, deadline: Duration, on_error: OnError) -> RedisLimiter {
    let store = store_at(&address(cluster), Settings::default().deadline(deadline)).await;
    let limiter = limiter_with(&store, "joint", "10/h burst 10", on_error);
    ready(&limiter).await;
    limiter
}

fn asks<'a>(limiter: &'a RedisLimiter, keys: [(&'a str, u64); 2]) -> [RedisRequest<'a>; 2] {
    keys.map(|(key, cost)| limiter.request(key.as_bytes()).cost(cost))
}

/// Pauses the server: it answers all requests afterwards.
fn pause(server: &RedisServer, time: Duration) {
    let time_ms = time.as_millis().to_string();
    assert_eq!(server.command(&["CLIENT", "PAUSE", &time_ms, "ALL"]).text(), "OK");
}

/// T32. The policy for the silent slot must not turn the denial into an admission.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_stays_a_denial_if_another_slot_does_not_answer() {
    let cluster = Cluster::start();
    let limiter = limiter_of(&cluster, Duration::from_millis(300), OnError::Allow).await;
    let (first, second, silent) = first_and_second(&cluster);
    becomes("the first is used up", TIMEOUT, async || limiter.check(&first).await.is_deny()).await;
    pause(silent, Duration::from_secs(3));
    let asks = asks(&limiter, [(&first, 1), (&second, 1)]);
    let joint = try_check_all(asks).await.expect("one has denied it");
    assert!(joint.decision.is_deny() && joint.each[0].is_deny());
    let silent = joint.each[1];
    assert_eq!((silent.limit, silent.known_remaining()), (10, None), "Redis has not reported it");
    assert!(check_all(asks).await.decision.is_deny());
    assert_eq!(limiter.stats().failed, 0);
}

/// T32. A request before the refund is denied, and only until the refund.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_of_a_joint_decision_removes_the_cached_denial() {
    let cluster = Cluster::start();
    let limiter = limiter_of(&cluster, PATIENT, OnError::Deny).await;
    let (first, second, late) = first_and_second(&cluster);
    assert!(limiter.check_n(&second, 10).await.is_allow());
    let silence = Duration::from_millis(700);
    pause(late, silence);
    let joint = tokio::spawn({
        let (limiter, first, second) = (limiter.clone(), first.clone(), second.clone());
        async move { try_check_all(asks(&limiter, [(&first, 10), (&second, 1)])).await }
    });
    sleep(silence / 4).await;
    assert!(limiter.check(&first).await.is_deny(), "it is reserved");
    assert_eq!(limiter.decide(first.as_bytes(), 1).await.source, DecisionSource::CachedDenial);
    let joint = joint.await.expect("the task does not panic").expect("both answer");
    assert!(joint.decision.is_deny());
    assert!(limiter.check(&first).await.is_allow());
}

/// T30. Each slot answers within the deadline, but all of them together do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_slots_share_one_deadline_and_their_charges_are_refunded() {
    let cluster = Cluster::start();
    // A quarter of it is left when the first slot answers: enough on a busy machine.
    let deadline = Duration::from_millis(1_600);
    let limiter = limiter_of(&cluster, deadline, OnError::Deny).await;
    let each = one_of_each(&cluster);
    assert_eq!(each.len(), 3);
    for (number, (_, primary)) in (1..).zip(&each) {
        pause(primary, deadline * 3 / 4 * number);
    }
    let ask = |(key, _): &(String, _)| (key.clone(), 4);
    let keys: Vec<(String, u64)> = each.iter().map(ask).collect();
    let asks: Vec<RedisRequest<'_>> =
        keys.iter().map(|(key, cost)| limiter.request(key.as_bytes()).cost(*cost)).collect();
    let began = Instant::now();
    let error = try_check_all(asks).await.expect_err("the second does not answer in time");
    assert!(began.elapsed() <= deadline + SLACK, "{error} after {:?}", began.elapsed());
    for (place, what) in [(0, "the first is given back"), (2, "the third was never asked")] {
        let key = &keys[place].0;
        becomes(what, TIMEOUT, async || counts(&limiter, key).await == Some(0)).await;
    }
}

/// T32. A cancelled request charges nothing in the end, whatever its deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_request_to_several_slots_has_charged_nothing() {
    let cluster = Cluster::start();
    let limiter = limiter_of(&cluster, PATIENT, OnError::Deny).await;
    let (first, second, silent) = first_and_second(&cluster);
    pause(silent, Duration::from_secs(3));
    let joint = tokio::spawn({
        let (limiter, first, second) = (limiter.clone(), first.clone(), second.clone());
        async move { try_check_all(asks(&limiter, [(&first, 4), (&second, 4)])).await }
    });
    becomes("the first is charged", TIMEOUT, async || counts(&limiter, &first).await == Some(4))
        .await;
    joint.abort();
    becomes("it is given back", TIMEOUT, async || counts(&limiter, &first).await == Some(0)).await;
}

/// T32. A charge in a window that has ended must not be refunded in the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charge_that_has_drained_when_another_slot_answers_is_not_refunded() {
    let cluster = Cluster::start();
    let store = store_at(&address(&cluster), Settings::default().deadline(PATIENT)).await;
    let limiter = limiter_with(&store, "joint", "10/2s fixed", OnError::Deny);
    ready(&limiter).await;
    let (first, second, silent) = first_and_second(&cluster);
    pause(silent, Duration::from_secs(10));
    let joint = tokio::spawn({
        let (limiter, first, second) = (limiter.clone(), first.clone(), second.clone());
        async move { try_check_all(asks(&limiter, [(&first, 4), (&second, 4)])).await }
    });
    becomes("the first is charged", TIMEOUT, async || counts(&limiter, &first).await == Some(4))
        .await;
    becomes("its window is over", TIMEOUT, async || counts(&limiter, &first).await == Some(0))
        .await;
    assert!(limiter.check_n(&first, 5).await.is_allow());
    joint.abort();
    assert!(joint.await.is_err(), "it was given up");
    sleep(Duration::from_millis(300)).await;
    assert_eq!(counts(&limiter, &first).await, Some(5), "another request was charged 5");
}

/// T32. A permit is released by its ticket, not refunded by its cost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_of_one_slot_is_released_when_another_slot_denies() {
    let cluster = Cluster::start();
    let store = store_at(&address(&cluster), Settings::default().deadline(PATIENT)).await;
    for rule in ["concurrency 10", "concurrency 10 lease 1h"] {
        let limiter = limiter_with(&store, "joint", rule, OnError::Deny);
        ready(&limiter).await;
        let (first, second, _) = first_and_second(&cluster);
        let full = limiter.request(&second).cost(10).try_acquire().await.expect("there is room");
        let joint = try_check_all(asks(&limiter, [(&first, 4), (&second, 1)])).await;
        assert!(joint.expect("both answer").decision.is_deny());
        assert_eq!(counts(&limiter, &first).await, Some(0), "`{rule}`");
        assert!(full.release().await.unwrap());
        let joint = try_check_all(asks(&limiter, [(&first, 4), (&second, 1)])).await;
        assert!(joint.expect("both answer").decision.is_allow());
        assert_eq!(counts(&limiter, &first).await, Some(4), "`{rule}`: it is kept");
        limiter.reset(&first).await.expect("it answers");
        limiter.reset(&second).await.expect("it answers");
    }
}

/// T10. Two limiters of one name are one limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_limiters_of_one_name_are_one_state_in_a_joint_decision() {
    let server = RedisServer::start();
    let store = store_at(&server.url(), Settings::default().deadline(PATIENT)).await;
    let both = [(); 2].map(|()| limiter_with(&store, "joint", "10/h burst 10", OnError::Deny));
    for limiter in &both {
        ready(limiter).await;
    }
    let asks = |cost| both.each_ref().map(|limiter| limiter.request(b"key").cost(cost));
    let joint = try_check_all(asks(6)).await.expect("it answers");
    assert!(joint.decision.is_deny(), "each has room for six, and both have not: {joint:?}");
    assert_eq!(counts(&both[0], "key").await, Some(0));
    let joint = try_check_all(asks(5)).await.expect("it answers");
    assert!(joint.decision.is_allow() && joint.each[0] == joint.each[1], "{joint:?}");
    assert_eq!(counts(&both[1], "key").await, Some(10));
}
