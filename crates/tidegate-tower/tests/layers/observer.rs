//! Which decisions observers get, and with which keys.

use crate::fixture::{Body, Inner, ask, from, get, limit};
use http::{HeaderName, Request, Response};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::ManualClock;
use tidegate_tower::{
    ConcurrencyLayer, DownloadRateLayer, Event, Key, Limit, LimitError, Observer, OnMissing,
    OutgoingLayer, RateLimitLayer, UploadRateLayer,
};
use tower::util::ServiceExt;
use tower_layer::Layer;
use tower_service::Service;

/// An observer that records a line for each event: the limit, its verdict, the cost and the key.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    fn lines(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Recorder {
    fn decided(&self, event: &Event<'_>) {
        let key = event.key.map(|key| String::from_utf8_lossy(key).into_owned());
        assert_eq!(event.has_key, key.is_some());
        let line = format!("{} {} {} {key:?}", event.limit, event.verdict(), event.cost);
        self.0.lock().unwrap().push(line);
    }

    fn wants_keys(&self) -> bool {
        true
    }
}

fn by_user() -> Key {
    Key::header(HeaderName::from_static("x-user"))
}

#[tokio::test]
async fn an_observer_that_wants_keys_gets_addresses_as_text() {
    let recorder = Recorder::default();
    let layer = RateLimitLayer::per_ip("1/h").unwrap().observe(recorder.clone());
    let service = layer.layer(Inner);
    for address in ["192.0.2.7", "::ffff:192.0.2.7", "2001:db8::1"] {
        ask(&service, from(address)).await;
    }
    let [v4, v6] = ["192.0.2.7", "2001:db8::/64"];
    let events = [
        format!("per-ip allow 1 Some({v4:?})"),
        format!("per-ip deny 1 Some({v4:?})"),
        format!("per-ip allow 1 Some({v6:?})"),
    ];
    assert_eq!(recorder.lines(), events);
}

#[tokio::test]
async fn a_limit_that_was_only_peeked_at_is_not_reported() {
    let (clock, recorder) = (ManualClock::new(), Recorder::default());
    let layer = RateLimitLayer::new(limit("user", "1/h", &clock))
        .unwrap()
        .and(limit("site", "100/h", &clock).cost(5))
        .unwrap()
        .and(limit("tried", "100/h", &clock).shadow())
        .unwrap();
    let service = layer.observe(recorder.clone()).layer(Inner);
    assert_eq!(ask(&service, get("/")).await.status, 200);
    let shadow = r#"tried allow 1 Some("")"#;
    let admitted = [r#"user allow 1 Some("")"#, r#"site allow 5 Some("")"#, shadow];
    assert_eq!(recorder.lines(), admitted);
    assert_eq!(ask(&service, get("/")).await.status, 429);
    let denied = [r#"user deny 1 Some("")"#];
    assert_eq!(
        recorder.lines(),
        denied,
        "neither the site limit nor the one in shadow mode has admitted anything"
    );
}

async fn refused<S, R>(service: &S, recorder: &Recorder) -> (u16, Vec<String>)
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone,
    R: http_body::Body<Data = bytes::Bytes>,
    R::Error: std::fmt::Debug,
{
    (ask(service, get("/")).await.status, recorder.lines())
}

/// Limits without a key: the request does not have it, or the server does not provide the peer.
fn without(rule: &str, is_peer: bool) -> Limit<ManualClock> {
    let limit = limit("user", rule, &ManualClock::new()).cost(3);
    if is_peer { limit.key(Key::ip()) } else { limit.key(by_user()).on_missing(OnMissing::Deny) }
}

#[tokio::test]
async fn a_request_that_is_rejected_without_a_key_is_reported() {
    for (is_peer, status) in [(false, 429), (true, 500)] {
        let expected = (status, vec!["user deny 3 None".to_owned()]);
        let recorder = Recorder::default();
        let alone = RateLimitLayer::new(without("10/h", is_peer)).unwrap();
        let alone = alone.observe(recorder.clone());
        assert_eq!(refused(&alone.clone().layer(Inner), &recorder).await, expected);
        let several = alone.and(limit("site", "10/h", &ManualClock::new())).unwrap();
        assert_eq!(refused(&several.layer(Inner), &recorder).await, expected);
        let concurrency = ConcurrencyLayer::new(without("concurrency 9", is_peer)).unwrap();
        let concurrency = concurrency.observe(recorder.clone()).layer(Inner);
        assert_eq!(refused(&concurrency, &recorder).await, expected);
    }
}

#[tokio::test]
async fn a_request_whose_pending_key_is_missing_is_reported() {
    let later = || Key::by_async(|_| async { None::<String> });
    let (clock, recorder) = (ManualClock::new(), Recorder::default());
    let found = |rule| limit("user", rule, &clock).key(later()).on_missing(OnMissing::Deny);
    let expected = (429, vec!["user deny 1 None".to_owned()]);
    let rate = RateLimitLayer::new(found("10/h")).unwrap().observe(recorder.clone());
    assert_eq!(refused(&rate.layer(Inner), &recorder).await, expected);
    let concurrency =
        ConcurrencyLayer::new(found("concurrency 9")).unwrap().observe(recorder.clone());
    assert_eq!(refused(&concurrency.layer(Inner), &recorder).await, expected);
}

#[tokio::test]
async fn a_byte_rate_layer_reports_requests_without_a_key() {
    let recorder = Recorder::default();
    let layer = DownloadRateLayer::new(without("10/h", false)).unwrap().observe(recorder.clone());
    let expected = (429, vec!["user deny 3 None".to_owned()]);
    assert_eq!(refused(&layer.layer(Inner), &recorder).await, expected);
}

#[tokio::test]
async fn outgoing_calls_are_reported_whether_made_or_denied() {
    let recorder = Recorder::default();
    let layer = OutgoingLayer::by("1/h", Duration::ZERO, |call: &&str| call.to_string()).unwrap();
    let client = layer.observe(recorder.clone()).layer(tower::service_fn(|call: &'static str| {
        std::future::ready(Ok::<_, Infallible>(call))
    }));
    for is_made in [true, false] {
        assert_eq!(client.clone().oneshot("a.example").await.is_ok(), is_made);
    }
    let expected =
        [r#"outgoing allow 1 Some("a.example")"#, r#"outgoing deny 1 Some("a.example")"#];
    assert_eq!(recorder.lines(), expected);
}

#[test]
fn options_that_a_layer_does_not_support_are_errors() {
    type SetOption = fn(Limit<ManualClock>) -> Limit<ManualClock>;
    let afterwards: [(&str, SetOption); 3] = [
        ("refund_if", |limit| limit.refund_if(|_, _| true)),
        ("charge_by", |limit| limit.charge_by(|_, _| 1)),
        ("charge_bytes", Limit::charge_bytes),
    ];
    let clock = ManualClock::new();
    for (option, set) in afterwards {
        let limit = |rule| set(limit("api", rule, &clock));
        let says = |error: LimitError, layer: &str| {
            let expected = format!(
                "limit `api` has the option `{option}`, which a {layer} does not support: remove it"
            );
            assert_eq!(error.to_string(), expected);
        };
        says(ConcurrencyLayer::new(limit("concurrency 9")).unwrap_err(), "ConcurrencyLayer");
        says(UploadRateLayer::new(limit("9/s")).unwrap_err(), "UploadRateLayer");
        says(DownloadRateLayer::new(limit("9/s")).unwrap_err(), "DownloadRateLayer");
        assert!(RateLimitLayer::new(limit("9/s")).is_ok());
    }
    let shadow = UploadRateLayer::new(limit("api", "9/s", &clock).shadow()).unwrap_err();
    assert!(shadow.to_string().contains("has the option `shadow`"), "{shadow}");
    assert!(ConcurrencyLayer::new(limit("api", "concurrency 9", &clock).shadow()).is_ok());
}
