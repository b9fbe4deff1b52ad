//! T34: warnings about the configuration of Redis.

use crate::harness::Harness;
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate_server::daemon;
use tidegate_testbed::{Fault, FaultProxy, RedisServer};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const LIMITS: &str = "[limits.api]\nrule = \"9/s\"\n";
const EVICTS: &str = "it evicts keys (maxmemory-policy allkeys-lru)";

/// Collects the log lines at `WARN`.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<String>>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Visit for Lines {
    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        let mut lines = self.0.lock().expect("no thread panics while it holds the lock");
        writeln!(lines, "{value:?}").expect("writing to a string does not fail");
    }
}

/// Waits until `/readyz?verbose` contains the text, or no longer contains it.
async fn wait_for_report(harness: &Harness, what: &str, is_there: bool) {
    let told = async {
        while harness.admin("/readyz?verbose").await.1.contains(what) != is_there {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), told).await;
    in_time.unwrap_or_else(|_| panic!("`{what}` in the report: never {is_there}"));
}

/// The test has one thread, because the subscriber receives the log of its own thread only.
// T34
#[tokio::test]
async fn a_redis_that_evicts_keys_causes_one_warning_and_is_still_used() {
    let lines = Lines::default();
    let _listening = tracing::subscriber::set_default(lines.clone());
    let redis = RedisServer::builder()
        .option("maxmemory", "100mb")
        .option("maxmemory-policy", "allkeys-lru")
        .start();
    let proxy = FaultProxy::to(redis.address());
    let harness = Harness::new(&proxy.url(), LIMITS).await;
    tokio::spawn(daemon::examine_store(Arc::downgrade(&harness.server)));
    wait_for_report(&harness, EVICTS, true).await;
    assert_eq!(harness.admin("/readyz").await, (200, "ok\n".to_owned()));
    let line = format!("[!] the store at {}: once it has used 104857600 bytes", proxy.address());
    let (_, body) = harness.admin("/readyz?verbose").await;
    assert!(body.contains(&line) && body.ends_with("\nok\n"), "{body}");
    // The server examines Redis again when it is back, and does not repeat known warnings.
    proxy.set(Fault::Refuse);
    wait_for_report(&harness, "does not answer", true).await;
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    proxy.set(Fault::Pass);
    wait_for_report(&harness, "if maxmemory is ever set", true).await;
    let said = lines.0.lock().unwrap().clone();
    assert_eq!(said.matches("once it has used").count(), 1, "{said}");
    assert_eq!(said.matches("if maxmemory is ever set").count(), 1, "{said}");
}

// T34
#[tokio::test]
async fn a_correct_redis_causes_no_warning() {
    // `tracing` caches per call site whether a subscriber wants its events. Without a subscriber here, the cache could disable the
    // warnings of the test above.
    let _listening = tracing::subscriber::set_default(Lines::default());
    let redis = RedisServer::start();
    let harness = Harness::new(&redis.url(), LIMITS).await;
    let store = harness.server.engine.store().shared().expect("the store is Redis");
    store.examine().await;
    assert_eq!(store.findings(), []);
    let (_, body) = harness.admin("/readyz?verbose").await;
    assert!(!body.contains("[!]"), "{body}");
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    store.examine().await;
    wait_for_report(&harness, "maxmemory-policy volatile-ttl", true).await;
    // The findings about a server that does not answer stay, and no finding is repeated.
    redis.kill();
    store.examine().await;
    assert_eq!(store.findings().len(), 1);
}
