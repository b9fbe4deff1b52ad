//! Which decisions are logged, and that keys are not.

use crate::fixture::{Inner, ask, get, limit};
use http::HeaderName;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use tidegate::ManualClock;
use tidegate_tower::{ConcurrencyLayer, Key, Log, OnMissing, RateLimitLayer};
use tower_layer::Layer;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A subscriber that records a line for each event: its level and its fields.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    fn lines(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let (level, target) = (event.metadata().level(), event.metadata().target());
        if target == "tidegate" {
            let mut line = Line(format!("{level}"));
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn denials_are_logged_at_info_and_other_decisions_at_trace_without_keys() {
    let recorder = Recorder::default();
    let _guard = tracing::subscriber::set_default(recorder.clone());
    let by_user = || Key::header(HeaderName::from_static("x-user"));
    let clock = ManualClock::new();
    let obeyed = limit("user", "1/min", &clock).key(by_user());
    let service = RateLimitLayer::new(obeyed).unwrap().observe(Log).layer(Inner);
    let alice = || get("/").header("x-user", "alice");
    ask(&service, alice()).await;
    ask(&service, alice()).await;
    assert_eq!(
        recorder.lines(),
        [
            r#"TRACE message=limit checked limit="user" verdict="allow" remaining=0"#,
            r#"INFO message=limit reached limit="user" verdict="deny" retry_after=Some(60s)"#,
        ]
    );
    let tried = limit("next year", "1/min", &clock).key(by_user()).shadow();
    let service = RateLimitLayer::new(tried).unwrap().observe(Log).layer(Inner);
    assert_eq!(ask(&service, alice().header("answer", "201")).await.status, 201);
    assert_eq!(ask(&service, alice()).await.status, 200, "in shadow mode");
    let lines = recorder.lines();
    assert!(lines[0].starts_with("TRACE") && lines[0].contains(r#"verdict="allow""#), "{lines:?}");
    assert!(lines[1].starts_with("INFO") && lines[1].contains(r#"verdict="shadow""#), "{lines:?}");
    assert!(!lines.concat().contains("alice"), "{lines:?}");
}

/// The time of a release is unknown.
#[tokio::test]
async fn denials_of_a_concurrency_layer_are_logged() {
    let recorder = Recorder::default();
    let _guard = tracing::subscriber::set_default(recorder.clone());
    let limit = limit("permits", "concurrency 1", &ManualClock::new()).cost(2);
    let service = ConcurrencyLayer::new(limit).unwrap().observe(Log).layer(Inner);
    assert_eq!(ask(&service, get("/")).await.status, 429);
    let line = r#"INFO message=limit reached limit="permits" verdict="deny" retry_after=None"#;
    assert_eq!(recorder.lines(), [line]);
}

#[tokio::test]
async fn a_request_without_a_key_is_logged_as_such() {
    let recorder = Recorder::default();
    let _guard = tracing::subscriber::set_default(recorder.clone());
    let limit = limit("user", "1/min", &ManualClock::new())
        .key(Key::header(HeaderName::from_static("x-user")))
        .on_missing(OnMissing::Deny);
    let service = RateLimitLayer::new(limit).unwrap().observe(Log).layer(Inner);
    assert_eq!(ask(&service, get("/")).await.status, 429);
    let line = r#"INFO message=no key to count by limit="user" verdict="deny""#;
    assert_eq!(recorder.lines(), [line]);
}

/// Also without an observer, since it is a mistake in the program.
#[tokio::test]
async fn a_missing_peer_is_logged_as_an_error() {
    let recorder = Recorder::default();
    let _guard = tracing::subscriber::set_default(recorder.clone());
    let limit = limit("ip", "1/min", &ManualClock::new()).key(Key::ip());
    let service = RateLimitLayer::new(limit).unwrap().layer(Inner);
    assert_eq!(ask(&service, get("/")).await.status, 500);
    let lines = recorder.lines();
    assert!(lines[0].starts_with("ERROR message=limit `ip` counts by address"), "{lines:?}");
    assert_eq!(lines.len(), 1, "{lines:?}");
}
