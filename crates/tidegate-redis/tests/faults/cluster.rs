//! A cluster of three primaries and their replicas: keys of many slots, alone and together.

use crate::stage::{PATIENT, limiter_with, ready, store_at};
use tidegate_redis::{
    DecisionSource, OnError, RedisLimiter, RedisRequest, Settings, try_check_all,
};
use tidegate_testbed::Cluster;

/// Returns the address of a cluster.
pub(crate) fn address(cluster: &Cluster) -> String {
    let hosts: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    format!("redis+cluster://{}", hosts.join(","))
}

/// Returns how much of a limit of 10 is charged to a key.
pub(crate) async fn counts(limiter: &RedisLimiter, key: &str) -> Option<u64> {
    Some(10 - limiter.request(key).cost(0).peek().await.ok()?.remaining)
}

/// Returns how many scripts all nodes have run.
fn scripts(cluster: &Cluster) -> u64 {
    let calls = |line: &str| -> Option<u64> {
        let rest = line.strip_prefix("cmdstat_eval")?.split_once("calls=")?.1;
        rest.split(',').next()?.parse().ok()
    };
    let of = |info: String| info.lines().filter_map(calls).sum::<u64>();
    cluster.servers().map(|node| of(node.command(&["INFO", "commandstats"]).text())).sum()
}

/// T32.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_all_slots_are_limited_each_by_itself_and_together() {
    let cluster = Cluster::start();
    let store = store_at(&address(&cluster), Settings::default().deadline(PATIENT)).await;
    let user = limiter_with(&store, "user", "10/h burst 10", OnError::Deny);
    let site = limiter_with(&store, "site", "10/h burst 10", OnError::Deny);
    ready(&user).await;
    ready(&site).await;
    each_by_itself(&user).await;
    all_or_nothing(&user, &site).await;
    one_subject_is_one_script(&cluster, &user, &site).await;
    assert_eq!(user.stats().failed + site.stats().failed, 0);
}

async fn each_by_itself(user: &RedisLimiter) {
    for number in 0..100 {
        let key = format!("many-{number}");
        for _ in 0..10 {
            let told = user.decide(key.as_bytes(), 1).await;
            assert_eq!(told.source, DecisionSource::Redis);
            assert!(told.decision.is_allow());
        }
        assert!(user.check(&key).await.is_deny());
    }
}

/// A denial in one slot refunds the others, wherever in the order it comes.
async fn all_or_nothing(user: &RedisLimiter, site: &RedisLimiter) {
    let keys: Vec<String> = (0..6).map(|number| format!("joint-{number}")).collect();
    let asks = |cost: u64| {
        let ask = |key: &'_ String| (key.clone(), cost);
        keys.iter().map(ask).collect::<Vec<_>>()
    };
    let check = async |costs: Vec<(String, u64)>| {
        let asks: Vec<RedisRequest<'_>> =
            costs.iter().map(|(key, cost)| user.request(key.as_bytes()).cost(*cost)).collect();
        try_check_all(asks).await.expect("all nodes are there")
    };
    assert!(check(asks(3)).await.decision.is_allow());
    for full in 0..keys.len() {
        // This key has 7 remaining, so 8 are too many.
        let mut costs = asks(1);
        costs[full].1 = 8;
        let joint = check(costs).await;
        assert!(joint.decision.is_deny());
        for key in &keys {
            assert_eq!(counts(user, key).await, Some(3), "{key} when {full} denies");
        }
    }
    assert_eq!(counts(site, &keys[0]).await, Some(0));
}

async fn one_subject_is_one_script(cluster: &Cluster, user: &RedisLimiter, site: &RedisLimiter) {
    let asks = [user, site].map(|limiter| limiter.request(b"one").cost(1));
    // The first request sends the script to its node.
    let _ = try_check_all(asks).await.expect("its node is there");
    let before = scripts(cluster);
    let joint = try_check_all(asks).await.expect("its node is there");
    assert!(joint.decision.is_allow());
    assert_eq!(scripts(cluster) - before, 1);
    assert_eq!((counts(user, "one").await, counts(site, "one").await), (Some(2), Some(2)));
}
