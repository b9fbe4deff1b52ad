//! T32: several keys decided as one, in slots of which one does not answer, or not at once.

use crate::cluster::address;
use crate::stage::{PATIENCE, PATIENT, becomes, limiter_with, ready, store_at};
use std::time::Duration;
use tidegate_redis::{JointAsk, OnError, RedisLimiter, Settings, Source, check_all, decide_all};
use tidegate_testbed::{Cluster, RedisServer};
use tokio::time::sleep;

/// Two keys of two primaries, in the order in which their slots are asked, and who has the second.
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

async fn limiter_of(cluster: &Cluster, deadline: Duration, on_error: OnError) -> RedisLimiter {
    let store = store_at(&address(cluster), Settings::default().deadline(deadline)).await;
    let limiter = limiter_with(&store, "joint", "10/h burst 10", on_error);
    ready(&limiter).await;
    limiter
}

fn asks<'a>(limiter: &'a RedisLimiter, keys: [(&'a str, u64); 2]) -> [JointAsk<'a>; 2] {
    keys.map(|(key, cost)| JointAsk { limiter, key: key.as_bytes(), cost })
}

/// Nobody is answered for so long, and then everybody is.
fn pause(server: &RedisServer, time: Duration) {
    let time_ms = time.as_millis().to_string();
    assert_eq!(server.command(&["CLIENT", "PAUSE", &time_ms, "ALL"]).text(), "OK");
}

/// What the silent one would have said changes nothing: its policy must not make an allow of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t32_a_denial_stays_one_though_another_slot_does_not_answer() {
    let cluster = Cluster::start();
    let limiter = limiter_of(&cluster, Duration::from_millis(300), OnError::Allow).await;
    let (first, second, silent) = first_and_second(&cluster);
    becomes("the first is used up", PATIENCE, async || limiter.check(&first).await.is_deny()).await;
    pause(silent, Duration::from_secs(3));
    let asks = asks(&limiter, [(&first, 1), (&second, 1)]);
    let joint = check_all(&asks).await.expect("one has denied it");
    assert!(joint.decision.is_deny() && joint.each[0].is_deny());
    assert_eq!((joint.each[1].limit, joint.each[1].remaining), (10, 0), "nobody knows better");
    assert!(decide_all(&asks).await.decision.is_deny());
    assert_eq!(limiter.stats().failed, 0);
}

/// Who asks in the moment between is denied what is given back after it, and only for that moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t32_what_a_joint_decision_gives_back_is_not_remembered_as_denied() {
    let cluster = Cluster::start();
    let limiter = limiter_of(&cluster, PATIENT, OnError::Deny).await;
    let (first, second, late) = first_and_second(&cluster);
    assert!(limiter.check_n(&second, 10).await.is_allow());
    let silence = Duration::from_millis(700);
    pause(late, silence);
    let joint = tokio::spawn({
        let (limiter, first, second) = (limiter.clone(), first.clone(), second.clone());
        async move { check_all(&asks(&limiter, [(&first, 10), (&second, 1)])).await }
    });
    sleep(silence / 4).await;
    assert!(limiter.check(&first).await.is_deny(), "it is reserved");
    assert_eq!(limiter.decide(first.as_bytes(), 1).await.source, Source::Remembered);
    let joint = joint.await.expect("nobody panics").expect("both answer");
    assert!(joint.decision.is_deny());
    assert!(limiter.check(&first).await.is_allow());
}
