//! The table of ad-hoc rules removes idle rules, as with limits in memory.

use crate::harness::Harness;
use std::time::Duration;
use tidegate_testbed::RedisServer;

/// After this number of refusals in a row, the server has examined every rule: each refusal examines 16 of 1,024.
const REFUSALS: usize = 100;
const FULL: &str = "-ERR the server keeps at most 1024 different rules";

/// Opens the rules `from/365day`, `from + 1/365day` and so on until the table is full. Returns how many were opened, each with a
/// key that owes something for hours.
async fn fill(harness: &mut Harness, from: usize) -> usize {
    let (mut opened, mut refusals) = (0, 0);
    while refusals < REFUSALS {
        let said = harness.say(&[&format!("TIDE.CHECK {}/365day k", from + opened)]).await;
        if said.starts_with(FULL) {
            refusals += 1;
        } else {
            assert!(said.starts_with("*5 :1 "), "{said}");
            (opened, refusals) = (opened + 1, 0);
        }
    }
    opened
}

/// Waits until `count` rules have been opened.
async fn fills(harness: &mut Harness, from: usize, count: usize) {
    let filled = async {
        let mut opened = 0;
        while opened < count {
            opened += fill(harness, from + opened).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        opened
    };
    let opened = tokio::time::timeout(Duration::from_secs(60), filled).await;
    assert_eq!(opened, Ok(count), "the number of idle rules");
}

#[tokio::test]
async fn an_idle_rule_is_removed_from_a_full_table_and_one_with_a_permit_is_not() {
    let redis = RedisServer::start();
    let mut harness = Harness::new(&redis.url(), "").await;
    let held = harness.say(&["\"TIDE.ACQUIRE\" \"concurrency 3\" k"]).await;
    assert!(held.starts_with("*5 :1 :3 :2 "), "{held}");
    let opened = fill(&mut harness, 1).await;
    assert_eq!(opened, 767, "with the other rule, the client's share of the table");

    for count in 1..=opened {
        let said = harness.say(&[&format!("TIDE.RESET {count}/365day k")]).await;
        assert_eq!(said, "+OK", "{count}");
    }
    fills(&mut harness, 1_001, opened).await;
    assert_eq!(fill(&mut harness, 2_001).await, 0, "a permit is held under the remaining rule");

    let lease = held.rsplit(' ').next().expect("the reply ends with the lease");
    assert_eq!(harness.say(&[&format!("TIDE.RELEASE {lease}")]).await, ":1");
    fills(&mut harness, 3_001, 1).await;
    assert!(
        harness.say(&["TIDE.PEEK 1001/365day k COST 0"]).await.starts_with("*5 :1 :1001 :1000 ")
    );
}

#[tokio::test]
async fn failures_of_a_rule_that_was_removed_are_still_counted() {
    let redis = RedisServer::start();
    let mut harness = Harness::new(&redis.url(), "").await;
    redis.kill();
    assert!(
        harness.say(&["TIDE.CHECK 5/h k"]).await.starts_with("*5 :1 "),
        "the server decides by its share"
    );
    assert_eq!(failures(&harness).await, 1);
    assert_eq!(harness.server.engine.clear_ad_hoc_rules(None), 1);
    assert_eq!(failures(&harness).await, 1);
}

/// Returns how often Redis did not decide under an ad-hoc rule.
async fn failures(harness: &Harness) -> u64 {
    let (_, metrics) = harness.admin("/metrics").await;
    let of_rules = |line: &str| -> Option<u64> {
        let rest = line.strip_prefix("tidegate_store_failures_total{limit=\"*\"")?;
        rest.rsplit(' ').next()?.parse().ok()
    };
    metrics.lines().filter_map(of_rules).sum()
}
