//! A Redis whose replies contain control sequences of a terminal.

use crate::harness::Harness;
use tidegate_testbed::FakeRedis;

const LIMITS: &str = "[limits.api]\nrule = \"9/s\"\n";
const INFO: &[u8] = b"$26\r\nmaxmemory_policy:\x1b[2J\xc2\x9b31m\r\n";
const ERROR: &[u8] = b"-ERR \x1b[2J \xc2\x9b31m\r\n";

/// Returns `/readyz?verbose`, which has no control character but line breaks.
async fn verbose(harness: &Harness) -> String {
    let (_, body) = harness.admin("/readyz?verbose").await;
    assert!(!body.contains(|c: char| c.is_control() && c != '\n'), "{body:?}");
    body
}

#[tokio::test]
async fn errors_of_redis_are_escaped_by_readyz() {
    let refuses = FakeRedis::start(|command| match command {
        "PING" => b"+PONG\r\n",
        "INFO" => INFO,
        _ => ERROR,
    });
    let mut harness = Harness::new(&refuses.url(), LIMITS).await;
    assert!(
        harness.say(&["TIDE.CHECK api k"]).await.starts_with("*5 :1 "),
        "the server decides by its share"
    );
    let body = verbose(&harness).await;
    let of_limit = body.lines().find(|line| line.contains("the limit `api` is decided without"));
    assert!(of_limit.is_some_and(|line| line.contains(r"\u001b[2J \u009b31m")), "{body}");

    let store = harness.server.engine.store().shared().expect("the store is Redis");
    store.examine().await;
    let body = verbose(&harness).await;
    assert!(body.contains(r"(maxmemory-policy \u001b[2J\u009b31m)"), "{body}");
    assert!(body.contains(r"it refuses EVAL: "), "{body}");
}

#[tokio::test]
async fn the_reason_why_a_server_is_not_used_is_escaped_by_readyz() {
    let shut = FakeRedis::start(|_| ERROR);
    let harness = Harness::new(&shut.url(), LIMITS).await;
    let body = verbose(&harness).await;
    let of_server = body.lines().find(|line| line.contains("does not answer, for "));
    assert!(of_server.is_some_and(|line| line.contains(r"\u001b[2J \u009b31m")), "{body}");
}
