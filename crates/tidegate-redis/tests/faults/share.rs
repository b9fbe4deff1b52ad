//! T33: without Redis, each node decides by its share of the limit, and requests admitted by shares are not admitted again.

use crate::stage::{Outage, PATIENT, Stage, TIMEOUT, becomes, id, limiter_with, ready};
use tidegate::Rule;
use tidegate_redis::{DecisionSource, OnError, RedisLimiter, Settings, check_all, try_check_all};
use tokio::task::JoinSet;

const NODES: u64 = 3;
/// One token in five minutes: there is no refill during a test.
const RULE: &str = "12/h burst 12";

async fn nodes(stage: &Stage, name: &str, nodes: u64) -> Vec<RedisLimiter> {
    let mut limiters = Vec::new();
    for _ in 0..NODES {
        let store = stage.store_with(Settings::default().deadline(PATIENT)).await;
        let limiter = limiter_with(&store, name, RULE, OnError::Local { nodes });
        ready(&limiter).await;
        limiters.push(limiter);
    }
    limiters
}

/// Returns how many of many more requests than the limit are admitted.
async fn admitted(nodes: &[RedisLimiter], key: &'static str) -> u64 {
    let mut asked = JoinSet::new();
    for limiter in nodes.iter().cycle().take(nodes.len() * 20) {
        let limiter = limiter.clone();
        asked.spawn(async move { limiter.check(key).await.is_allow() });
    }
    let passed = asked.join_all().await;
    passed.into_iter().map(u64::from).sum()
}

async fn is_back(limiter: &RedisLimiter) {
    becomes("Redis decides again", TIMEOUT, async || {
        limiter.decide(b"probe", 0).await.source == DecisionSource::Redis
    })
    .await;
}

/// T33.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_all_nodes_together_admit_no_more_than_the_limit() {
    let stage = Stage::new();
    let shared = nodes(&stage, "shared", NODES).await;
    let alone = nodes(&stage, "alone", 1).await;
    stage.begin(Outage::Refused);
    assert_eq!(admitted(&shared, "key").await, 12);
    assert_eq!(
        admitted(&alone, "key").await,
        NODES * 12,
        "as configured: each node counts for itself"
    );
}

/// T33.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_does_not_begin_with_a_fresh_burst() {
    let stage = Stage::new();
    let nodes = nodes(&stage, "warm", NODES).await;
    for limiter in &nodes {
        for _ in 0..4 {
            assert!(limiter.check("key").await.is_allow());
        }
    }
    assert!(nodes[0].check("key").await.is_deny(), "all is used up");
    stage.begin(Outage::Refused);
    assert_eq!(admitted(&nodes, "key").await, 0);
    assert!(nodes[1].stats().failed > 0, "it was the share that denied");
}

/// T33. So under an uneven load all nodes together may admit an extra burst.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_counts_what_its_own_node_was_admitted_and_not_the_others() {
    let stage = Stage::new();
    let nodes = nodes(&stage, "uneven", NODES).await;
    for _ in 0..12 {
        assert!(nodes[0].check("key").await.is_allow());
    }
    stage.begin(Outage::Refused);
    assert_eq!(admitted(&nodes[..1], "key").await, 0);
    assert_eq!(admitted(&nodes[1..], "key").await, 8, "the shares of the two others");
}

/// T33. What other nodes were admitted is known from what Redis had remaining.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_begins_an_outage_with_its_part_of_what_redis_had_remaining() {
    let stage = Stage::new();
    let nodes = nodes(&stage, "part", NODES).await;
    assert!(nodes[0].check_n("key", 7).await.is_allow());
    for limiter in &nodes {
        assert!(limiter.check("key").await.is_allow());
    }
    assert!(nodes[1].check("key").await.is_allow());
    assert_eq!(
        stage.witness("part", RULE).await.request("key").cost(0).peek().await.unwrap().remaining,
        1
    );
    stage.begin(Outage::Refused);
    assert_eq!(admitted(&nodes[..1], "key").await, 1, "of its part of 5 it was admitted 1");
    assert_eq!(admitted(&nodes[1..2], "key").await, 0, "of its part of 3 as well");
    assert_eq!(admitted(&nodes[2..], "key").await, 1, "this is its part of 2");
}

/// T33. After a denial nothing is remaining for any node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_that_redis_has_only_denied_begins_an_outage_with_nothing() {
    let stage = Stage::new();
    let nodes = nodes(&stage, "denied", NODES).await;
    assert!(nodes[0].check_n("key", 12).await.is_allow());
    assert!(nodes[1].check("key").await.is_deny());
    stage.begin(Outage::Refused);
    assert_eq!(admitted(&nodes[..2], "key").await, 0);
    assert_eq!(admitted(&nodes[2..], "key").await, 4, "this one has never asked");
}

/// T33. From a joint denial the share of each limit learns what Redis has remaining.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_whose_joint_requests_redis_has_only_denied_begins_an_outage_with_nothing() {
    let stage = Stage::new();
    let denied = nodes(&stage, "jointly denied", NODES).await;
    let other = nodes(&stage, "other", NODES).await;
    assert!(denied[0].check_n("key", 12).await.is_allow());
    assert!(other[0].check_n("key", 9).await.is_allow());
    let asks = [&denied[1], &other[1]].map(|limiter| limiter.request(b"key").cost(1));
    assert!(try_check_all(asks).await.expect("Redis answers").decision.is_deny());
    let asks = [&denied[2], &other[2]].map(|limiter| limiter.request(b"key").cost(1));
    assert!(check_all(asks).await.decision.is_deny());
    stage.begin(Outage::Refused);
    assert_eq!(admitted(&denied, "key").await, 0);
    assert_eq!(admitted(&other[1..], "key").await, 2, "a third of the three that were left, each");
}

/// T33.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn try_check_charges_the_share_too() {
    let stage = Stage::new();
    let nodes = nodes(&stage, "tried", NODES).await;
    for limiter in &nodes {
        for _ in 0..4 {
            assert!(limiter.try_check("key", 1).await.expect("Redis answers").is_allow());
        }
    }
    stage.begin(Outage::Refused);
    assert_eq!(admitted(&nodes, "key").await, 0);
}

/// T33.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn try_check_all_charges_the_share_so_that_its_requests_are_not_admitted_again() {
    let stage = Stage::new();
    let nodes = nodes(&stage, "all", NODES).await;
    for limiter in &nodes {
        for _ in 0..4 {
            let joint = try_check_all([limiter.request(b"before")]).await.expect("Redis answers");
            assert!(joint.decision.is_allow());
        }
    }
    stage.begin(Outage::Refused);
    assert_eq!(admitted(&nodes, "before").await, 0);
    assert_eq!(admitted(&nodes, "meanwhile").await, 12);
    stage.end(Outage::Refused);
    for limiter in &nodes {
        is_back(limiter).await;
        let joint = try_check_all([limiter.request(b"meanwhile")]).await.expect("Redis is back");
        assert!(joint.decision.is_deny());
    }
}

/// T33. The caller has a policy for failures, but an admission of which Redis does not know is not a failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn try_check_does_not_admit_again_what_was_admitted_without_redis() {
    let stage = Stage::new();
    let nodes = nodes(&stage, "tried again", NODES).await;
    stage.begin(Outage::Refused);
    assert_eq!(admitted(&nodes, "key").await, 12);
    stage.end(Outage::Refused);
    for limiter in &nodes {
        is_back(limiter).await;
        assert!(limiter.try_check("key", 1).await.expect("Redis is back").is_deny());
        assert!(limiter.try_check("other", 1).await.expect("Redis is back").is_allow());
    }
}

/// T33. Redis does not know of admissions without it, and would admit as much again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_admitted_without_redis_are_not_admitted_again() {
    for outage in [Outage::Refused, Outage::Killed] {
        let stage = Stage::new();
        let nodes = nodes(&stage, "again", NODES).await;
        stage.begin(outage);
        assert_eq!(admitted(&nodes, "key").await, 12);
        stage.end(outage);
        for limiter in &nodes {
            is_back(limiter).await;
        }
        assert_eq!(admitted(&nodes, "key").await, 0, "{outage:?}");
        for limiter in &nodes {
            assert!(limiter.check_once("key", 1, id("id")).await.is_deny());
            let other = limiter.decide(b"other", 1).await;
            assert_eq!((other.source, other.decision.is_allow()), (DecisionSource::Redis, true));
        }
        let witness = stage.witness("again", RULE).await;
        let left =
            witness.request("key").cost(0).peek().await.expect("its way does not fail").remaining;
        assert_eq!(left, 12, "a request that the share denies is not charged in Redis");
    }
}

/// T33. An admission without Redis affects only its own key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_was_admitted_nothing_without_redis_is_decided_by_redis_alone() {
    let stage = Stage::new();
    let nodes = nodes(&stage, "others", NODES).await;
    stage.begin(Outage::Refused);
    for limiter in &nodes {
        assert!(limiter.check("key").await.is_allow());
        assert!(limiter.check_n("denied", 13).await.is_deny());
    }
    stage.end(Outage::Refused);
    for limiter in &nodes {
        is_back(limiter).await;
    }
    assert_eq!(admitted(&nodes[..1], "key").await, 3, "of the share one was admitted before");
    for key in ["denied", "other"] {
        assert_eq!(admitted(&nodes[..1], key).await, 12, "{key}: one node may have all");
    }
}

/// Returns how many of many joint requests to two limits are admitted.
async fn admitted_together(asked: &[RedisLimiter; 2], key: &'static [u8]) -> u64 {
    let mut passed = 0;
    for _ in 0..20 {
        let asks = asked.each_ref().map(|limiter| limiter.request(key));
        passed += u64::from(check_all(asks).await.decision.is_allow());
    }
    passed
}

/// T33. The other limit has enough remaining, and is not charged for what the first denies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joint_requests_are_not_admitted_again_after_an_outage() {
    const WIDE: &str = "1000/h burst 1000";
    let stage = Stage::new();
    let store = stage.store_with(Settings::default().deadline(PATIENT)).await;
    let limiters = [("narrow", RULE, OnError::default()), ("wide", WIDE, OnError::Allow)]
        .map(|(name, rule, on_error)| limiter_with(&store, name, rule, on_error));
    for limiter in &limiters {
        ready(limiter).await;
    }
    stage.begin(Outage::Refused);
    assert_eq!(admitted_together(&limiters, b"key").await, 12);
    stage.end(Outage::Refused);
    for limiter in &limiters {
        is_back(limiter).await;
    }
    assert_eq!(admitted_together(&limiters, b"key").await, 0);
    assert_eq!(admitted_together(&limiters, b"other").await, 12, "nothing was admitted to it");
    let asks = limiters.each_ref().map(|limiter| limiter.request(b"key").cost(1));
    let joint = check_all(asks).await;
    assert!(joint.each[0].is_deny() && joint.each[1].is_allow());
    assert_eq!(joint.each[1].remaining, 1000, "what Redis has");
    let witness = stage.witness("narrow", RULE).await;
    let left =
        witness.request("key").cost(0).peek().await.expect("its way does not fail").remaining;
    assert_eq!(left, 12, "a request that the share denies is not charged in Redis");
}

/// T33. Redis is refunded for requests that the share then denies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_a_joint_request_that_the_share_denies_is_refunded_by_all_limits() {
    let stage = Stage::new();
    let store = stage.store_with(Settings::default().deadline(PATIENT)).await;
    let limiters = [("narrow", RULE), ("wide", "1000/day burst 1000")]
        .map(|(name, rule)| limiter_with(&store, name, rule, OnError::default()));
    for limiter in &limiters {
        ready(limiter).await;
    }
    stage.begin(Outage::Refused);
    for _ in 0..9 {
        assert!(limiters[0].check("key").await.is_allow());
    }
    stage.end(Outage::Refused);
    for limiter in &limiters {
        is_back(limiter).await;
    }
    let mut asked = JoinSet::new();
    for _ in 0..40 {
        let limiters = limiters.clone();
        asked.spawn(async move {
            let ask = |limiter| RedisLimiter::request(limiter, b"key");
            check_all(limiters.each_ref().map(ask)).await.decision.is_allow()
        });
    }
    let passed: u64 = asked.join_all().await.into_iter().map(u64::from).sum();
    assert!((1..=3).contains(&passed), "{passed}");
    for (limiter, burst) in limiters.iter().zip([12, 1000]) {
        let left = limiter.request("key").cost(0).peek().await.expect("Redis answers").remaining;
        assert_eq!(burst - left, passed);
    }
}

/// T33. Two requests about one key have twice the cost, for the share too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_the_share_must_admit_the_whole_joint_request() {
    let stage = Stage::new();
    let store = stage.store_with(Settings::default().deadline(PATIENT)).await;
    let limiter = limiter_with(&store, "twice", RULE, OnError::default());
    ready(&limiter).await;
    stage.begin(Outage::Refused);
    for _ in 0..11 {
        assert!(limiter.check("key").await.is_allow());
    }
    stage.end(Outage::Refused);
    is_back(&limiter).await;
    let ask = limiter.request(b"key").cost(1);
    assert!(check_all([ask, ask]).await.decision.is_deny());
    assert!(check_all([ask]).await.decision.is_allow());
    assert!(check_all([ask]).await.decision.is_deny());
}

/// T33. Only a part was used: the rest is admitted, and no more, however many requests come at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_the_share_and_redis_must_both_admit() {
    let stage = Stage::new();
    let nodes = nodes(&stage, "both", NODES).await;
    stage.begin(Outage::Refused);
    for limiter in &nodes {
        for key in ["one by one", "at once"] {
            for _ in 0..3 {
                assert!(limiter.check(key).await.is_allow());
            }
        }
    }
    stage.end(Outage::Refused);
    for limiter in &nodes {
        is_back(limiter).await;
        assert!(limiter.check("one by one").await.is_allow());
        assert!(limiter.check("one by one").await.is_deny());
    }
    // Redis may charge some requests that the share then denies: fewer are admitted, and never more.
    assert!((1..=3).contains(&admitted(&nodes, "at once").await));
}

async fn leasing<const N: usize>(stage: &Stage, names: [&str; N]) -> [RedisLimiter; N] {
    let store = stage.store_with(Settings::default().deadline(PATIENT)).await;
    let limiters = names.map(|name| {
        let rule = RULE.parse().unwrap_or_else(|error| panic!("{error}"));
        store.builder(name, rule).lease(true).build().expect("Redis can keep it")
    });
    for limiter in &limiters {
        ready(limiter).await;
    }
    limiters
}

/// Waits until the node takes leases, which it does not after its start and after an outage.
async fn takes_leases(limiter: &RedisLimiter) {
    let mut key = 0_u64;
    becomes("leases are given", TIMEOUT, async || {
        key += 1;
        limiter.decide(&key.to_le_bytes(), 1).await.source == DecisionSource::Lease
    })
    .await;
}

/// T33. A lease is spent without asking Redis, so the share must be charged when it is granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_and_the_share_together_admit_no_more_than_the_limit() {
    let stage = Stage::new();
    let [limiter] = leasing(&stage, ["lent"]).await;
    takes_leases(&limiter).await;
    let before = 5;
    for _ in 0..before {
        let told = limiter.decide(b"key", 1).await;
        assert_eq!((told.source, told.decision.is_allow()), (DecisionSource::Lease, true));
    }
    stage.begin(Outage::Refused);
    let after = admitted(std::slice::from_ref(&limiter), "key").await;
    assert!(limiter.stats().failed > 0, "it was the share that decided");
    assert!(before + after <= 12, "{before} with Redis and {after} without");
}

/// T33.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lease_covers_what_was_admitted_without_redis() {
    let stage = Stage::new();
    let [limiter, other] = leasing(&stage, ["lent", "other"]).await;
    stage.begin(Outage::Refused);
    for _ in 0..11 {
        assert!(limiter.check("key").await.is_allow());
    }
    stage.end(Outage::Refused);
    for limiter in [&limiter, &other] {
        is_back(limiter).await;
    }
    takes_leases(&other).await;
    let mut after = 0;
    while limiter.check("key").await.is_allow() {
        after += 1;
    }
    assert_eq!(after, 1, "Redis would lend six");
}

/// T33. The debt of the share has drained after 100 ms: from then on Redis alone decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_all_has_drained_redis_alone_decides() {
    let stage = Stage::new();
    let store = stage.store_with(Settings::default().deadline(PATIENT)).await;
    let limiter = limiter_with(&store, "drained", "100/s burst 10", OnError::Local { nodes: 10 });
    ready(&limiter).await;
    stage.begin(Outage::Refused);
    while !limiter.check("key").await.is_deny() {}
    stage.end(Outage::Refused);
    // The burst of its share is one, that of the limit ten.
    becomes("ten pass at once", TIMEOUT, async || limiter.check_n("key", 10).await.is_allow())
        .await;
}

/// T33. A node that reads a state of the new rule adopts the rule, for its share too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_share_adopts_a_rule_that_a_request_discovers() {
    let stage = Stage::new();
    let nodes = nodes(&stage, "changed", NODES).await;
    let rule: Rule = "6/h burst 6".parse().expect("it is a rule");
    nodes[0].set_rule(rule.clone()).await.expect("Redis answers");
    assert!(nodes[0].check("key").await.is_allow());
    for limiter in &nodes[1..] {
        assert!(limiter.check("key").await.is_allow());
        assert_eq!(limiter.rule(), rule, "it was met");
    }
    stage.begin(Outage::Refused);
    for limiter in &nodes {
        assert_eq!(admitted(std::slice::from_ref(limiter), "other").await, 2, "a third of it");
    }
}
