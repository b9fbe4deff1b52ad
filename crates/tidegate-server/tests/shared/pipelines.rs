//! Commands of a pipeline are sent to Redis at the same time and decided in order.
#![expect(clippy::disallowed_methods, reason = "the test measures real round trips")]

use crate::harness::Harness;
use std::time::{Duration, Instant};
use tidegate_testbed::{Fault, FaultProxy, RedisServer};

const LIMITS: &str =
    "[limits.a]\nrule = \"1/day burst 100\"\n[limits.pool]\nrule = \"concurrency 2 lease 30s\"\n";
/// Delay of the connection to Redis.
const ROUND_TRIP: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_takes_a_round_trip_and_not_one_for_each_command() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::to(redis.address());
    let mut harness = Harness::new(&proxy.url(), LIMITS).await;
    harness.say(&["TIDE.CHECK a first", "CL.THROTTLE first 15 30 60"]).await;
    proxy.set(Fault::Delay(ROUND_TRIP));
    let mut lines: Vec<String> = (0..50).map(|key| format!("TIDE.CHECK a key{key}")).collect();
    lines.extend((0..50).map(|key| format!("CL.THROTTLE key{key} 15 30 60")));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let wrapped = [&["MULTI"], &lines[..], &["EXEC"]].concat();
    for pipeline in [&lines, &wrapped] {
        let since = Instant::now();
        let said = harness.say(pipeline).await;
        let took = since.elapsed();
        assert_eq!(said.matches("*5").count(), 100, "{said}");
        assert!(took >= ROUND_TRIP && took < 20 * ROUND_TRIP, "{took:?}");
    }
}

#[tokio::test]
async fn commands_about_one_key_are_decided_in_their_order() {
    let redis = RedisServer::start();
    let mut harness = Harness::new(&redis.url(), LIMITS).await;
    let said = harness.say(&["TIDE.CHECK a k"; 100]).await;
    let remaining: Vec<&str> =
        said.split("*5 ").skip(1).map(|five| five.split(' ').nth(2).unwrap()).collect();
    let expected: Vec<String> = (0..100).rev().map(|left| format!(":{left}")).collect();
    assert_eq!(remaining, expected);
    let said =
        harness.say(&["TIDE.CHECK a k", "TIDE.RESET a k", "TIDE.PEEK a k COST 0", "PING"]).await;
    let denied = said.split(" +OK ").collect::<Vec<_>>();
    assert!(denied[0].starts_with("*5 :0 :100 :0 "), "{said}");
    assert_eq!(denied[1], "*5 :1 :100 :100 :0 :0 +PONG");
}

/// The limits in shadow mode are charged for the requests that the other limit admits.
#[tokio::test]
async fn a_limit_in_shadow_mode_is_checked_in_redis_with_others_and_denies_nothing() {
    let limits = "[limits.api]\nrule = \"3/h\"\n\
                  [limits.wide]\nrule = \"100/h\"\nmode = \"shadow\"\n\
                  [limits.narrow]\nrule = \"1/h\"\nmode = \"shadow\"\n";
    let redis = RedisServer::start();
    let mut harness = Harness::new(&redis.url(), limits).await;
    let mut passed = 0;
    for _ in 0..6 {
        let said = harness.say(&["TIDE.CHECKALL api k 1 wide k 1 narrow k 1"]).await;
        let api = said.split("*5 ").nth(1).expect("the reply has a decision");
        passed += usize::from(api.starts_with(":1 "));
    }
    assert_eq!(passed, 3);
    for (limit, left) in [("api", 0), ("wide", 97), ("narrow", 0)] {
        let said = harness.say(&[&format!("TIDE.PEEK {limit} k COST 0")]).await;
        assert_eq!(said.split(' ').nth(3), Some(&*format!(":{left}")), "{limit}: {said}");
    }
}

#[tokio::test]
async fn errors_come_in_the_order_of_the_commands() {
    let redis = RedisServer::start();
    let mut harness = Harness::new(&redis.url(), LIMITS).await;
    let lines = [
        "TIDE.CHECK a k COST 100",
        "TIDE.CHECK b k",
        "CL.THROTTLE k 15 0 60",
        "TIDE.CHECKALL a k 1 a other 1",
        "TIDE.CHECK 1/week k COST 18446744073709551615",
        "TIDE.CHECK 1/week:burst k",
        "NOTHING",
    ];
    let said = harness.say(&lines).await;
    let at = |what: &str| said.find(what).unwrap_or_else(|| panic!("{what} is not in {said}"));
    let places = [
        at("*5 :1 :100 :0 "),
        at("-ERR no limit is named `b`"),
        at("-Cell error: Store error: Zero rates"),
        at("*2 *5 :0 :100 :0 "),
        at("*5 :0 :1 :1 :-1 "),
        at("-ERR no limit is named `1/week:burst`"),
        at("-ERR unknown command 'NOTHING'"),
    ];
    assert!(places.is_sorted(), "{said}");
    let said = harness.say(&["\"TIDE.CHECK\" \"1/week burst 9007199254740992\" k"]).await;
    assert!(
        said.starts_with("-ERR `1/week burst 9007199254740992` cannot be kept in Redis"),
        "{said}"
    );
}

#[tokio::test]
async fn permits_are_acquired_and_released_in_redis() {
    let redis = RedisServer::start();
    let mut harnesses =
        [Harness::new(&redis.url(), LIMITS).await, Harness::new(&redis.url(), LIMITS).await];
    let lease =
        |said: &str| said.rsplit(' ').next().expect("the reply ends with the lease").to_owned();
    let first = harnesses[0].say(&["TIDE.ACQUIRE pool db"]).await;
    assert!(first.starts_with("*5 :1 :2 :1 :30000 $32 "), "{first}");
    assert!(harnesses[1].say(&["TIDE.ACQUIRE pool db"]).await.starts_with("*5 :1 :2 :0 "));
    assert!(harnesses[1].say(&["TIDE.ACQUIRE pool db"]).await.starts_with("*5 :0 :2 :0 "));
    let release = format!("TIDE.RELEASE {}", lease(&first));
    assert_eq!(harnesses[0].say(&[&release, &release]).await, ":1 :0");
    assert!(harnesses[1].say(&["TIDE.ACQUIRE pool db"]).await.starts_with("*5 :1 :2 :0 "));
}

#[tokio::test]
async fn keys_of_cl_throttle_are_shared_and_reset() {
    let redis = RedisServer::start();
    let mut harnesses =
        [Harness::new(&redis.url(), "").await, Harness::new(&redis.url(), "").await];
    assert_eq!(harnesses[0].say(&["CL.THROTTLE k 0 1 3600"]).await, "*5 :0 :1 :0 :-1 :3600");
    assert!(harnesses[1].say(&["CL.THROTTLE k 0 1 3600"]).await.starts_with("*5 :1 :1 :0 :"));
    assert_eq!(harnesses[1].say(&["DEL k unused"]).await, ":1");
    assert_eq!(harnesses[0].say(&["CL.THROTTLE k 0 1 3600"]).await, "*5 :0 :1 :0 :-1 :3600");
    assert!(harnesses[0].say(&["INFO"]).await.contains("allowed:2"));
}

#[tokio::test]
async fn a_request_that_one_limit_denies_is_not_counted_as_allowed_by_others() {
    let redis = RedisServer::start();
    let limits = "[limits.a]\nrule = \"1/day burst 100\"\n[limits.one]\nrule = \"1/day\"\n";
    let mut harness = Harness::new(&redis.url(), limits).await;
    for _ in 0..3 {
        harness.say(&["TIDE.CHECKALL a k 1 one k 1"]).await;
    }
    let limits = harness.server.engine.limits();
    let counted = |name: &str| {
        let stats = limits.get(name).expect("the limit exists").counters().stats();
        (stats.allowed, stats.denied)
    };
    assert_eq!((counted("a"), counted("one")), ((1, 0), (1, 2)));
}
