//! The configurations and the Redis user of `docs/guide/redis.md` work.

use crate::harness::Harness;
use tidegate_server::config;
use tidegate_testbed::RedisServer;

const PAGE: &str = include_str!("../../../../docs/guide/redis.md");

/// Returns the page's code blocks in this language.
fn blocks(language: &str) -> impl Iterator<Item = &str> {
    let parts = PAGE.split("```").skip(1).step_by(2);
    parts.filter_map(move |part| part.strip_prefix(language)?.strip_prefix('\n'))
}

#[test]
fn the_guides_configurations_are_valid() {
    assert_eq!(blocks("toml").count(), 2);
    for block in blocks("toml") {
        let config = config::read(block, "redis.md").unwrap_or_else(|errors| panic!("{errors}"));
        assert!(config.store.is_some());
    }
}

#[tokio::test]
async fn the_guides_redis_user_has_all_permissions_and_keys_have_the_documented_names() {
    let user = blocks("text").next().expect("the page has a text block").trim();
    let redis = RedisServer::builder().acl(user).start();
    let rules = [
        "10/s",
        "10/s leaky",
        "10/s queue",
        "10/s fixed",
        "10/day calendar",
        "10/s sliding",
        "10/s sliding-log",
        "10/s smooth",
        "10/s warmup 1s",
        "10r/s burst=5 nodelay",
    ];
    let limit =
        |(place, rule)| format!("[limits.l{place}]\nrule = \"{rule}\"\non_error = \"deny\"\n");
    let mut limits: String = rules.iter().enumerate().map(limit).collect();
    limits.push_str("[limits.pool]\nrule = \"concurrency 2 lease 30s\"\non_error = \"deny\"\n");
    let url = redis.url().replace("://", "://limiter:secret@");
    let mut harness = Harness::new(&url, &limits).await;
    for (place, rule) in rules.iter().enumerate() {
        for line in
            ["TIDE.CHECK l k", "TIDE.PEEK l k", "TIDE.REFUND l k", "TIDE.CHECKALL l k 1 l0 k 1"]
        {
            let said = harness.say(&[&line.replace(" l ", &format!(" l{place} "))]).await;
            assert!(!said.starts_with('-') && !said.starts_with("*5 :0"), "{rule}: {said}");
        }
    }
    let said = harness.say(&["TIDE.ACQUIRE pool k"]).await;
    assert!(said.starts_with("*5 :1 "), "{said}");
    let lease = said.rsplit(' ').next().expect("the reply ends with the lease");
    assert_eq!(harness.say(&[&format!("TIDE.RELEASE {lease}")]).await, ":1");
    assert!(harness.say(&["CL.THROTTLE user:1 15 30 60"]).await.starts_with("*5 :0 "));
    assert_eq!(harness.say(&["TIDE.RESET l0 k"]).await, "+OK");
    let named = |key: &str| redis.command(&["EXISTS", key]) == tidegate_testbed::Reply::Integer(1);
    assert!(named("tg:{user:1}:cl:throttle") && named("tg:rule:l0") && named("tg:{k}:l1"));
}
