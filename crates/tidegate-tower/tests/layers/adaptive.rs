//! The adaptive limit: it follows the load, is never exceeded, and all permits are released (A14, T13).

use crate::concurrency::{InFlightCount, SlowService, quiet_panic, request};
use crate::fixture::{Body, Inner, ask, get};
use crate::mixed_load::{self, UpstreamTimeout};
use http::{Request, Response, StatusCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::Decision;
use tidegate::clock::TokioClock;
use tidegate::load::{Adaptive, AdaptiveGate};
use tidegate_tower::{AdaptiveLayer, Event, LoadSignal};
use tower::util::ServiceExt;
use tower_layer::Layer;
use tower_service::Service;

type Gate = AdaptiveGate<TokioClock>;

fn gate(adaptive: Adaptive) -> Gate {
    AdaptiveGate::with_clock(adaptive, TokioClock::new())
}

/// Responds after 5 ms; panics, fails or reports an overload if the path says so.
fn handler(
    in_flight: InFlightCount,
    called: impl Fn() + Clone + Send + 'static,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = UpstreamTimeout, Future: Send>
+ Clone
+ Send {
    tower::service_fn(move |request: Request<Body>| {
        called();
        let present = in_flight.enter();
        async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let mut response = Response::new(Body::default());
            match request.uri().path() {
                "/panic/call" | "/panic/await" => quiet_panic(),
                "/late" => return Err(UpstreamTimeout),
                "/busy" => *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
                _ => {}
            }
            drop(present);
            Ok(response)
        }
    })
}

#[tokio::test]
async fn the_limit_comes_down_on_overloads_only() {
    let after = async |layer: fn(AdaptiveLayer<TokioClock>) -> AdaptiveLayer<TokioClock>,
                       answer| {
        let gate = gate(Adaptive::vegas());
        let service = layer(AdaptiveLayer::new(gate.clone())).layer(Inner);
        for _ in 0..20 {
            assert_eq!(
                ask(&service, get("/").header("answer", u16::to_string(&answer))).await.status,
                answer
            );
        }
        assert_eq!(gate.in_flight(), 0);
        (gate.limit(), gate.baseline().is_some())
    };
    for overload in [429, 503, 504] {
        assert_eq!(after(|layer| layer, overload).await.0, 18, "{overload}");
    }
    for served in [200, 404, 500] {
        let (limit, is_sampled) = after(|layer| layer, served).await;
        assert!(limit >= 20 && is_sampled, "{served}: {limit}");
    }
    let ignored = |layer: AdaptiveLayer<TokioClock>| layer.classify(|_, _| LoadSignal::Ignore);
    assert_eq!(after(ignored, 503).await, (20, false));
}

#[test]
fn grpc_statuses_of_an_overload_are_recognized() {
    let of = |code: &'static str| {
        let mut headers = http::HeaderMap::new();
        headers.insert("grpc-status", http::HeaderValue::from_static(code));
        LoadSignal::of(StatusCode::OK, &headers)
    };
    assert!(["4", "8", "14"].map(of).iter().all(|outcome| *outcome == LoadSignal::Overload));
    assert!(["0", "5", "13"].map(of).iter().all(|outcome| *outcome == LoadSignal::Served));
}

#[tokio::test(start_paused = true)]
async fn a_request_over_the_limit_is_rejected_with_a_retry_time_or_waits() {
    let one = gate(Adaptive::vegas().between(1..=1));
    let layer = AdaptiveLayer::new(one.clone());
    let held = one.try_acquire().unwrap();
    let refused = ask(&layer.layer(Inner), get("/")).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert!(refused.body.contains("#temporary-reduced-capacity"), "{}", refused.body);
    assert!(refused.body.contains("all 1 are in use"), "{}", refused.body);

    let patient = layer.wait(Duration::from_millis(20)).layer(Inner);
    let waiting = tokio::spawn(async move {
        (ask(&patient, get("/")).await.status, ask(&patient, get("/")).await.status)
    });
    tokio::time::advance(Duration::from_millis(10)).await;
    tokio::task::yield_now().await;
    drop(held);
    assert_eq!(waiting.await.unwrap(), (200, 200));
    assert_eq!(one.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn observers_get_what_is_left_after_a_wait_too() {
    let gate = gate(Adaptive::vegas().between(2..=2));
    let (events, held) = (Arc::new(Mutex::new(Vec::new())), gate.try_acquire().unwrap());
    let notes = Arc::clone(&events);
    let layer = AdaptiveLayer::new(gate.clone()).observe(move |event: &Event<'_>| {
        let Decision { limit, remaining, .. } = event.decision;
        notes.lock().unwrap().push((event.limit.to_owned(), event.verdict(), limit, remaining));
    });
    ask(&layer.layer(Inner), get("/")).await;
    let other = gate.try_acquire().unwrap();
    assert_eq!(ask(&layer.layer(Inner), get("/")).await.status, 503);
    let patient = layer.wait(Duration::from_millis(20)).layer(Inner);
    let waiting = tokio::spawn(async move { ask(&patient, get("/")).await.status });
    tokio::time::advance(Duration::from_millis(10)).await;
    tokio::task::yield_now().await;
    assert_eq!(events.lock().unwrap().len(), 2, "a waiting request has no decision yet");
    drop((held, other));
    assert_eq!(waiting.await.unwrap(), 200);
    let reported = |verdict, remaining| ("adaptive".to_owned(), verdict, 2, remaining);
    assert_eq!(
        *events.lock().unwrap(),
        [reported("allow", 0), reported("deny", 0), reported("allow", 0)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_released_when_the_head_of_the_response_is_there() {
    let gate = gate(Adaptive::vegas());
    let service = AdaptiveLayer::new(gate.clone()).layer(SlowService(InFlightCount::default()));
    for _ in 0..20 {
        let response = service.clone().oneshot(request("/")).await.unwrap();
        assert_eq!(gate.in_flight(), 0, "though the body is still to come");
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(response);
    }
    assert_eq!(gate.in_flight(), 0);
    let head = gate.baseline().unwrap().as_duration();
    assert!((5..10).contains(&head.as_millis()), "the body was measured: {head:?}");
}

/// T13, while the limit moves: overloads, panics, requests that are given up.
#[tokio::test(start_paused = true)]
async fn requests_in_flight_never_exceed_the_limit_and_end_at_zero() {
    static LEAST: AtomicU64 = AtomicU64::new(u64::MAX);
    static MOST: AtomicU64 = AtomicU64::new(0);
    let (gate, in_flight) = (gate(Adaptive::vegas().between(1..=50)), InFlightCount::default());
    let observed = gate.clone();
    let called = move || {
        let limit = observed.limit();
        assert!(observed.in_flight() <= limit, "{} of {limit}", observed.in_flight());
        LEAST.fetch_min(limit, Ordering::Relaxed);
        MOST.fetch_max(limit, Ordering::Relaxed);
    };
    let service = AdaptiveLayer::new(gate.clone()).layer(handler(in_flight.clone(), called));
    mixed_load::run(&service).await;
    assert!(LEAST.load(Ordering::Relaxed) < MOST.load(Ordering::Relaxed), "the limit never moved");
    assert_eq!(
        (gate.in_flight(), in_flight.now.load(Ordering::SeqCst)),
        (0, 0),
        "a permit has leaked"
    );
}

/// T13: waiting requests are admitted when others end.
#[tokio::test(start_paused = true)]
async fn waiting_requests_keep_to_the_limit() {
    let (gate, in_flight) = (gate(Adaptive::vegas().between(3..=3)), InFlightCount::default());
    let layer = AdaptiveLayer::new(gate.clone()).wait(Duration::from_millis(20));
    mixed_load::run(&layer.layer(handler(in_flight.clone(), || ()))).await;
    assert_eq!(in_flight.most.load(Ordering::SeqCst), 3);
    assert_eq!(
        (gate.in_flight(), in_flight.now.load(Ordering::SeqCst)),
        (0, 0),
        "a permit has leaked"
    );
}
