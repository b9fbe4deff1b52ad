//! Shedding: the least important requests are rejected first, and every permit is released (T13).

use crate::concurrency::{DropAfterPolls, InFlightCount, SlowService, request};
use crate::fixture::{Inner, ask, call, from, get};
use crate::mixed_load;
use http::Response;
use http_body_util::BodyExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::load::{Priority, Shedder};
use tidegate_tower::service::LoadService;
use tidegate_tower::{Event, Head, ShedLayer};
use tower::util::ServiceExt;
use tower_layer::Layer;

/// Returns a shedder that looks only at requests in flight, not at the machine.
fn shedder(max: u64) -> Shedder {
    Shedder::builder().watch_nothing().in_flight_max(max).build()
}

fn by_path(head: &Head<'_>) -> Priority {
    match head.path() {
        "/pay" => Priority::Critical,
        "/suggestions" => Priority::Sheddable,
        _ => Priority::Normal,
    }
}

fn slow(shedder: &Shedder) -> (LoadService<SlowService, Shedder>, InFlightCount) {
    let in_flight = InFlightCount::default();
    let layer = ShedLayer::new(shedder.clone()).priority(by_path);
    (layer.layer(SlowService(in_flight.clone())), in_flight)
}

#[tokio::test(start_paused = true)]
async fn critical_requests_are_admitted_when_sheddable_ones_are_rejected() {
    let shedder = shedder(10);
    let (service, _) = slow(&shedder);
    let mut bodies = Vec::new();
    for _ in 0..8 {
        bodies.push(service.clone().oneshot(request("/")).await.unwrap());
    }
    assert_eq!(shedder.in_flight(), 8, "the responses are here, and their bodies are not");
    for path in ["/suggestions", "/"] {
        let refused = ask(&service, get(path)).await;
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{path}");
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
        assert_eq!(refused.header("cache-control"), Some("no-store"));
    }
    assert_eq!(ask(&service, get("/pay")).await.status, 200);
    bodies.truncate(5);
    assert_eq!(ask(&service, get("/suggestions")).await.status, 200, "a permit is free again");
    assert_eq!(ask(&service, get("/suggestions")).await.body, "piecepiecepiece");
    drop(bodies);
    assert_eq!(shedder.in_flight(), 0);
}

#[tokio::test]
async fn a_rejection_says_why_in_the_protocol_of_the_client() {
    let service = ShedLayer::new(shedder(0)).layer(Inner);
    let refused = ask(&service, get("/")).await;
    let problem = r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Service Unavailable","status":503,"detail":"normal traffic is shed: as much is in flight as may be; try again later"}"#;
    assert_eq!(refused.body, problem);
    let grpc = ask(&service, call()).await;
    assert_eq!((grpc.status, grpc.header("grpc-status"), &*grpc.body), (200, Some("14"), ""));
    let message = grpc.header("grpc-message").unwrap();
    assert!(message.starts_with("normal traffic is shed"), "{message}");
}

#[tokio::test]
async fn retry_after_is_rounded_up_never_0_and_spread() {
    let reported = |layer: ShedLayer| async move {
        let refused = ask(&layer.layer(Inner), get("/")).await;
        refused.header("retry-after").unwrap().parse::<u64>().unwrap()
    };
    let layer = || ShedLayer::new(shedder(0));
    assert_eq!(reported(layer().retry_after(Duration::ZERO)).await, 1);
    assert_eq!(reported(layer().retry_after(Duration::from_millis(2_001))).await, 3);
    let spread = layer().retry_jitter(Duration::from_secs(1_000));
    let service = spread.layer(Inner);
    let mut seconds = Vec::new();
    for _ in 0..20 {
        let refused = ask(&service, get("/")).await;
        seconds.push(refused.header("retry-after").unwrap().parse::<u64>().unwrap());
    }
    assert!(seconds.iter().all(|seconds| (1..=1_001).contains(seconds)), "{seconds:?}");
    seconds.dedup();
    assert!(seconds.len() > 10, "{seconds:?}");
}

#[tokio::test]
async fn a_fallback_gets_the_reason_and_its_response_a_retry_time() {
    let layer = ShedLayer::new(shedder(0)).priority(by_path);
    let layer = layer
        .fallback(|head, shed| Response::new(format!("{} of {}", head.path(), shed.priority())));
    let reply = ask(&layer.layer(Inner), get("/pay")).await;
    assert_eq!((reply.status, &*reply.body), (200, "/pay of critical"));
    assert_eq!(reply.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn observers_see_admitted_and_shed_requests() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&events);
    let shedder = shedder(1);
    let layer =
        ShedLayer::new(shedder.clone()).priority(by_path).observe(move |event: &Event<'_>| {
            let reported = (event.limit.to_owned(), event.verdict(), event.priority.unwrap());
            notes.lock().unwrap().push(reported);
        });
    let service = layer.clone().layer(Inner);
    let held = shedder.try_enter(Priority::Critical).unwrap();
    assert_eq!(ask(&service, get("/pay")).await.status, 503);
    assert_eq!(ask(&service, get("/suggestions")).await.status, 503);
    drop(held);
    assert_eq!(ask(&layer.name("front").layer(Inner), get("/pay")).await.status, 200);
    let reported = |name: &str, verdict, priority| (name.to_owned(), verdict, priority);
    assert_eq!(
        *events.lock().unwrap(),
        [
            reported("shed", "deny", Priority::Critical),
            reported("shed", "deny", Priority::Sheddable),
            reported("front", "allow", Priority::Critical),
        ]
    );
}

#[tokio::test]
async fn a_priority_by_address_believes_trusted_proxies_only() {
    let staff = |head: &Head<'_>| match head.client_ip() {
        Some(ip) if ip.to_string() == "192.0.2.7" => Priority::Critical,
        _ => Priority::Batch,
    };
    // Two requests may be in flight. Batch traffic may use only one of these permits.
    let shedder = shedder(2);
    let _held = shedder.try_enter(Priority::Critical).unwrap();
    let layer = ShedLayer::new(shedder.clone()).priority(staff);
    let from_proxy = || from("10.0.0.1").header("x-forwarded-for", "192.0.2.7");
    assert_eq!(
        ask(&layer.clone().layer(Inner), from_proxy()).await.status,
        503,
        "no office address was reported"
    );
    let trusting = layer.clone().trusted_proxies(["10.0.0.0/8".parse().unwrap()]).layer(Inner);
    assert_eq!(ask(&trusting, from_proxy()).await.status, 200);
    let spoofed = from("198.51.100.1").header("x-forwarded-for", "192.0.2.7");
    assert_eq!(ask(&trusting, spoofed).await.status, 503);
    let found = layer.peer(|_| "192.0.2.7".parse().ok()).layer(Inner);
    assert_eq!(ask(&found, get("/")).await.status, 200);
}

// T13
#[tokio::test(start_paused = true)]
async fn dropped_bodies_and_panics_release_the_permit() {
    let shedder = shedder(1);
    let (service, in_flight) = slow(&shedder);
    let response = service.clone().oneshot(request("/pay")).await.unwrap();
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(shedder.in_flight(), 1);
    drop(body);
    assert_eq!(shedder.in_flight(), 0, "the body was dropped half-way");
    let (service, all) =
        (ShedLayer::new(shedder.clone()).priority(|_| Priority::Critical), in_flight);
    let service = service.layer(SlowService(all.clone()));
    for path in ["/panic/call", "/panic/await"] {
        let task = tokio::spawn(service.clone().oneshot(request(path)));
        assert!(task.await.is_err_and(|error| error.is_panic()), "{path}");
        assert_eq!(shedder.in_flight(), 0, "{path}");
    }
    assert_eq!(all.now.load(Ordering::SeqCst), 0);
}

// T13
#[tokio::test(start_paused = true)]
async fn requests_in_flight_never_exceed_the_maximum_and_end_at_zero() {
    let (shedder, in_flight) = (shedder(5), InFlightCount::default());
    mixed_load::run(&ShedLayer::new(shedder.clone()).layer(SlowService(in_flight.clone()))).await;
    assert_eq!(in_flight.most.load(Ordering::SeqCst), 4, "80 % of what may be in flight");
    assert_eq!((shedder.in_flight(), in_flight.now.load(Ordering::SeqCst)), (0, 0));
}

// T13
#[tokio::test(start_paused = true)]
async fn a_request_that_is_given_up_at_any_poll_releases_its_permit() {
    let shedder = shedder(1);
    let (service, in_flight) = slow(&shedder);
    for polls in 0..20 {
        let service = service.clone();
        let whole = Box::pin(async move {
            let response = service.oneshot(request("/pay")).await.unwrap();
            response.into_body().collect().await.unwrap().to_bytes().len()
        });
        let ended = DropAfterPolls { future: whole, polls }.await;
        assert_eq!(shedder.in_flight(), 0, "after {polls} polls");
        assert_eq!(in_flight.now.load(Ordering::SeqCst), 0, "after {polls} polls");
        if let Some(bytes) = ended {
            assert_eq!(bytes, 15);
            assert!(polls > 2, "it was never given up");
            return;
        }
    }
    panic!("it was always given up");
}
