//! The examples in the guide have the responses that the guide shows.

use super::{Harness, Reply, limit};
use crate::config::Config;

const GUIDE: &str = include_str!("../../../../../../docs/guide/http.md");

/// Returns each command of the guide with its response.
fn examples() -> impl Iterator<Item = (&'static str, &'static str)> {
    let blocks = GUIDE.split("```console\n$ ").skip(1);
    blocks.map(|block| block.split("\n```").next().unwrap().split_once('\n').unwrap())
}

/// Returns the reply to `curl -s localhost:8080/path --json 'body'`.
async fn run(harness: &Harness, command: &str) -> Reply {
    let rest = command.strip_prefix("curl -s localhost:8080").expect(command);
    match rest.split_once(" --json '") {
        Some((path, body)) => harness.post(path, body.strip_suffix('\'').expect(command)).await,
        None => harness.get(rest).await,
    }
}

/// Replaces the lease, which differs each time.
fn without_lease(text: &str) -> String {
    match text.split_once(r#""lease":""#) {
        Some((before, after)) => {
            let (_, after) = after.split_once('"').unwrap();
            format!(r#"{before}"lease":"…"{after}"#)
        }
        None => text.to_owned(),
    }
}

#[tokio::test]
async fn every_example_is_answered_as_written() {
    let limits = vec![limit("login", "5/min"), limit("jobs", "concurrency 2 lease 30s")];
    let harness = Harness::with(Config { limits, ..Config::default() });
    let mut count = 0;
    for (command, answer) in examples() {
        let reply = run(&harness, command).await;
        assert_eq!(without_lease(&reply.text), answer, "{command}");
        count += 1;
    }
    assert!(count >= 8, "only {count} examples were found");
}
