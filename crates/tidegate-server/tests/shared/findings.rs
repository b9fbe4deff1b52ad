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

/// Keeps what is said at `WARN`.
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
        let mut lines = self.0.lock().expect("nobody panics with it");
        writeln!(lines, "{value:?}").expect("a text takes all");
    }
}

/// Until the operator is told so, or not any more.
async fn is_told(harness: &Harness, what: &str, is_there: bool) {
    let told = async {
        while harness.admin("/readyz?verbose").await.1.contains(what) != is_there {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), told).await;
    in_time.unwrap_or_else(|_| panic!("`{what}` is never told: {is_there}"));
}

/// On one thread: who listens hears what is said on it.
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
    is_told(&harness, EVICTS, true).await;
    assert_eq!(harness.admin("/readyz").await, (200, "ok\n".to_owned()));
    let line = format!("[!] the store at {}: once it has used 104857600 bytes", proxy.address());
    let (_, body) = harness.admin("/readyz?verbose").await;
    assert!(body.contains(&line) && body.ends_with("\nok\n"), "{body}");
    // It is looked at again when it has come back, and what is known is not said again.
    proxy.set(Fault::Refuse);
    is_told(&harness, "does not answer", true).await;
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    proxy.set(Fault::Pass);
    is_told(&harness, "if maxmemory is ever set", true).await;
    let said = lines.0.lock().unwrap().clone();
    assert_eq!(said.matches("once it has used").count(), 1, "{said}");
    assert_eq!(said.matches("if maxmemory is ever set").count(), 1, "{said}");
}

// T34
#[tokio::test]
async fn a_correct_redis_causes_no_warning() {
    // What nobody listens to on the thread that says it first is not said on any other either: so this listens too.
    let _listening = tracing::subscriber::set_default(Lines::default());
    let redis = RedisServer::start();
    let harness = Harness::new(&redis.url(), LIMITS).await;
    let store = harness.server.engine.store().shared().expect("it is Redis");
    store.examine().await;
    assert_eq!(store.findings(), []);
    let (_, body) = harness.admin("/readyz?verbose").await;
    assert!(!body.contains("[!]"), "{body}");
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    store.examine().await;
    is_told(&harness, "maxmemory-policy volatile-ttl", true).await;
    // Who cannot be asked is not forgotten, and nothing is found twice.
    redis.kill();
    store.examine().await;
    assert_eq!(store.findings().len(), 1);
}
