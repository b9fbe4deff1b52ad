//! Limits on requests in flight: they are never exceeded, and all permits are released (T13).

use crate::fixture::{Body, ask, from, get};
use crate::mixed_load::{self, UpstreamTimeout};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate::clock::TokioClock;
use tidegate::{Denied, Limiter, SystemClock};
use tidegate_tower::service::Concurrency;
use tidegate_tower::{ConcurrencyLayer, HeaderStyle, Key, Limit, OnMissing};
use tower::util::ServiceExt;
use tower_layer::Layer;
use tower_service::Service;

/// The number of requests in the handler or in a body, now and at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlightCount {
    pub(crate) now: Arc<AtomicUsize>,
    pub(crate) most: Arc<AtomicUsize>,
}

pub(crate) struct InFlightGuard(InFlightCount);

impl InFlightCount {
    pub(crate) fn enter(&self) -> InFlightGuard {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        InFlightGuard(self.clone())
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A service that waits in the handler and between the frames of its body; fails, panics or is busy if the path says so.
#[derive(Clone, Debug)]
pub(crate) struct SlowService(pub(crate) InFlightCount);

impl Service<Request<Body>> for SlowService {
    type Response = Response<Pieces>;
    type Error = UpstreamTimeout;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Pieces>, UpstreamTimeout>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), UpstreamTimeout>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let present = self.0.enter();
        if request.uri().path() == "/panic/call" {
            quiet_panic();
        }
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let pieces = Pieces { left: 3, pause: None, present: Some(present) };
            let mut response = Response::new(pieces);
            match request.uri().path() {
                "/panic/await" => quiet_panic(),
                "/late" => return Err(UpstreamTimeout),
                "/busy" => *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
                _ => {}
            }
            Ok(response)
        })
    }
}

/// The message of a panic that the request asked for.
pub(crate) const QUIET_PANIC: &str = "a handler that fails";

/// Panics without a message in the test's output: there are hundreds of thousands of these panics.
pub(crate) fn quiet_panic() -> ! {
    std::panic::resume_unwind(Box::new(QUIET_PANIC))
}

pub(crate) struct Pieces {
    left: usize,
    pause: Option<Pin<Box<tokio::time::Sleep>>>,
    present: Option<InFlightGuard>,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            self.present = None;
            return Poll::Ready(None);
        }
        let pause = self
            .pause
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::from_millis(5))));
        std::task::ready!(pause.as_mut().poll(context));
        self.pause = None;
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"piece")))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::new()
    }
}

fn limited(
    rule: &str,
    in_flight: &InFlightCount,
) -> (Concurrency<SlowService, TokioClock>, Limiter<TokioClock>) {
    let limiter = Limiter::with_clock(rule.parse().unwrap(), TokioClock::new());
    let layer = ConcurrencyLayer::new(Limit::over("permits", limiter.clone())).unwrap();
    (layer.layer(SlowService(in_flight.clone())), limiter)
}

pub(crate) fn request(path: &str) -> Request<Body> {
    Request::get(path).body(Body::default()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_fallback_service_responds_to_denied_requests_and_takes_no_permit() {
    let limiter = Limiter::with_clock("concurrency 1".parse().unwrap(), TokioClock::new());
    let free = || limiter.request(&b""[..]).cost(0).peek().remaining;
    for patience in [Duration::ZERO, Duration::from_millis(50)] {
        let (in_flight, others) = (InFlightCount::default(), InFlightCount::default());
        let mut other = SlowService(others.clone());
        let other = tower::service_fn(move |request: Request<Body>| {
            let denied = request.extensions().get::<Denied>();
            assert!(denied.unwrap().decision.is_deny(), "the reason is in the extensions");
            other.call(request)
        });
        let layer = ConcurrencyLayer::new(Limit::over("permits", limiter.clone())).unwrap();
        let layer = layer.wait(patience).fallback_service(other);
        let service = layer.layer(SlowService(in_flight.clone()));
        let first = service.clone().oneshot(request("/")).await.unwrap();
        let second = service.clone().oneshot(request("/")).await.unwrap();
        let present = |in_flight: &InFlightCount| in_flight.now.load(Ordering::SeqCst);
        assert_eq!((present(&in_flight), present(&others), free()), (1, 1, 0));
        assert_eq!(second.status(), 200);
        assert_eq!(second.headers()["ratelimit"], r#""permits";r=0"#);
        assert_eq!(second.headers()["retry-after"], "1");
        drop(first);
        assert_eq!(
            (present(&in_flight), present(&others), free()),
            (0, 1, 1),
            "it holds no permit"
        );
        assert_eq!(ask(&service, get("/")).await.body, "piecepiecepiece");
        assert_eq!((in_flight.most.load(Ordering::SeqCst), present(&others)), (1, 1));
        let late = second.into_body().collect().await.unwrap().to_bytes();
        assert_eq!((late, present(&others), free()), (Bytes::from("piecepiecepiece"), 0, 1));
        let failed = async {
            let _held = service.clone().oneshot(request("/")).await.unwrap();
            service.clone().oneshot(request("/late")).await
        };
        assert!(matches!(failed.await, Err(UpstreamTimeout)), "its errors are the layer's");
    }
}

/// A request without a key is not denied by the limit, so the fallback service is not called.
#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_is_rejected_and_not_passed_to_the_fallback_service() {
    let user = Key::header(http::HeaderName::from_static("x-user"));
    let limit = Limit::new("permits", "concurrency 1").unwrap().key(user);
    let layer = ConcurrencyLayer::new(limit.on_missing(OnMissing::Deny)).unwrap();
    let others = InFlightCount::default();
    let layer = layer.fallback_service(SlowService(others.clone()));
    let reply = ask(&layer.layer(SlowService(InFlightCount::default())), get("/")).await;
    assert_eq!((reply.status, others.most.load(Ordering::SeqCst)), (429, 0));
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_held_until_the_body_has_ended() {
    let in_flight = InFlightCount::default();
    let (service, limiter) = limited("concurrency 1", &in_flight);
    let free = || limiter.request(&b""[..]).cost(0).peek().remaining;
    let response = service.clone().oneshot(request("/")).await.unwrap();
    assert_eq!(response.headers()["ratelimit-policy"], r#""permits";q=1;qu="concurrent-requests""#);
    assert_eq!(free(), 0, "the response is here, and its body is not");
    let denied = ask(&service, get("/")).await;
    assert_eq!((denied.status, denied.header("retry-after")), (429, Some("1")));
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame.unwrap();
        assert_eq!(free(), 0);
    }
    assert_eq!(free(), 1, "the end was seen, although the body was not dropped");
    assert_eq!(ask(&service, get("/")).await.body, "piecepiecepiece");
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_are_served_in_the_order_of_arrival() {
    let in_flight = InFlightCount::default();
    let (service, limiter) = limited("concurrency 2 wait 1s", &in_flight);
    let mut tasks = tokio::task::JoinSet::new();
    let served = Arc::new(std::sync::Mutex::new(Vec::new()));
    for number in 0..20 {
        let (service, served) = (service.clone(), Arc::clone(&served));
        tasks.spawn(async move {
            let status = ask(&service, get("/")).await.status;
            served.lock().unwrap().push(number);
            status
        });
    }
    assert!(tasks.join_all().await.iter().all(|status| *status == 200));
    // Two are served at a time, and end at the same moment.
    let pairs: Vec<i32> = served.lock().unwrap().iter().map(|number| number / 2).collect();
    assert_eq!(pairs.len(), 20);
    assert!(pairs.is_sorted(), "{pairs:?}");
    assert_eq!(in_flight.most.load(Ordering::SeqCst), 2);
    assert_eq!(limiter.request(&b""[..]).cost(0).peek().remaining, 2);
}

// T13
#[tokio::test(start_paused = true)]
async fn requests_in_flight_never_exceed_the_limit_and_end_at_zero() {
    let in_flight = InFlightCount::default();
    let (service, limiter) = limited("concurrency 3 wait 20ms", &in_flight);
    mixed_load::run(&service).await;
    assert_eq!(in_flight.most.load(Ordering::SeqCst), 3);
    assert_eq!(in_flight.now.load(Ordering::SeqCst), 0);
    let free = limiter.request(&b""[..]).cost(0).peek().remaining;
    assert_eq!(free, 3, "a permit has leaked");
}

/// T13: gives the request up after 0, 1, 2… polls, until it ends before that.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_given_up_at_any_poll_releases_its_permit() {
    let in_flight = InFlightCount::default();
    let (service, limiter) = limited("concurrency 1 wait 1s", &in_flight);
    for polls in 0..40 {
        let service = service.clone();
        let holder = service.clone().oneshot(request("/")).await.unwrap();
        let waiter = Box::pin(async move {
            let response = service.oneshot(request("/")).await.unwrap();
            response.into_body().collect().await.unwrap().to_bytes().len()
        });
        let released = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(3)).await;
            drop(holder);
        });
        let ended = DropAfterPolls { future: waiter, polls }.await;
        released.await.unwrap();
        assert_eq!(in_flight.now.load(Ordering::SeqCst), 0, "after {polls} polls");
        let free = limiter.request(&b""[..]).cost(0).peek().remaining;
        assert_eq!(free, 1, "after {polls} polls");
        if let Some(bytes) = ended {
            assert_eq!(bytes, 15);
            return;
        }
    }
    panic!("it was always given up");
}

/// Drops a future after this number of polls.
pub(crate) struct DropAfterPolls<F> {
    pub(crate) future: F,
    pub(crate) polls: usize,
}

impl<F: Future + Unpin> Future for DropAfterPolls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        if self.polls == 0 {
            return Poll::Ready(None);
        }
        self.polls -= 1;
        Pin::new(&mut self.future).poll(context).map(Some)
    }
}

#[tokio::test]
async fn permits_are_counted_by_key_and_shadow_mode_rejects_no_request() {
    let held =
        |layer: ConcurrencyLayer<SystemClock>| layer.layer(SlowService(InFlightCount::default()));
    let of = |ip: &str| from(ip).body(Body::default()).unwrap();
    let service = held(ConcurrencyLayer::per_ip("concurrency 1").unwrap());
    let one = service.clone().oneshot(of("192.0.2.1")).await.unwrap();
    assert_eq!(service.clone().oneshot(of("192.0.2.1")).await.unwrap().status(), 429);
    assert_eq!(service.clone().oneshot(of("192.0.2.2")).await.unwrap().status(), 200);
    drop(one);
    assert_eq!(service.oneshot(of("192.0.2.1")).await.unwrap().status(), 200);

    let shadow = Limit::new("tried", "concurrency 1").unwrap().key(Key::ip()).shadow();
    let service = held(ConcurrencyLayer::new(shadow).unwrap());
    let one = service.clone().oneshot(of("192.0.2.1")).await.unwrap();
    let other = service.clone().oneshot(of("192.0.2.1")).await.unwrap();
    assert_eq!(other.status(), 200);
    for response in [&one, &other] {
        assert_eq!(response.headers().get("ratelimit"), None, "clients do not see it");
    }
    drop(one);
    assert_eq!(
        service.oneshot(request("/")).await.unwrap().status(),
        200,
        "and a request without an address is not rejected"
    );
}

/// Several limits on requests in flight are several layers: a request that one denies holds no permit of another.
#[tokio::test]
async fn a_request_holds_permits_of_all_limits_or_of_none() {
    let over = |limiter: &Limiter, key| Limit::over("permits", limiter.clone()).key(key);
    let [all, each] =
        ["concurrency 3", "concurrency 2"].map(|rule| Limiter::new(rule.parse().unwrap()));
    let outer = ConcurrencyLayer::new(over(&all, Key::everyone())).unwrap();
    let inner = ConcurrencyLayer::new(over(&each, Key::ip())).unwrap();
    let free =
        |limiter: &Limiter, key: &str| limiter.request(key.as_bytes()).cost(0).peek().remaining;
    for is_reversed in [false, true] {
        let slow = SlowService(InFlightCount::default());
        let of = |ip: &str| from(ip).body(Body::default()).unwrap();
        let reply = async |ip: &str| {
            let (outer, inner, slow, of) = (&outer, &inner, slow.clone(), of(ip));
            if is_reversed {
                let response = inner.layer(outer.layer(slow)).oneshot(of).await;
                return response.unwrap().map(BodyExt::boxed_unsync);
            }
            let response = outer.layer(inner.layer(slow)).oneshot(of).await;
            response.unwrap().map(BodyExt::boxed_unsync)
        };
        let held = [reply("192.0.2.1").await, reply("192.0.2.1").await];
        assert_eq!(reply("192.0.2.1").await.status(), 429, "the third request of one client");
        assert_eq!(free(&all, ""), 1, "it holds no permit of the limit for all");
        let other = reply("192.0.2.2").await;
        assert_eq!(other.status(), 200);
        assert_eq!(reply("192.0.2.3").await.status(), 429, "the fourth request of all");
        assert_eq!(free(&each, "192.0.2.3"), 2, "it holds no permit of its own limit");
        drop((held, other));
        assert_eq!((free(&all, ""), free(&each, "192.0.2.1"), free(&each, "192.0.2.2")), (3, 2, 2));
    }
}

#[tokio::test]
async fn permits_are_reported_in_the_chosen_fields() {
    let layer = ConcurrencyLayer::for_all("concurrency 5").unwrap().headers(HeaderStyle::Legacy);
    let response =
        layer.layer(SlowService(InFlightCount::default())).oneshot(request("/")).await.unwrap();
    assert_eq!(response.headers()["x-ratelimit-remaining"], "4");
}

#[tokio::test]
async fn for_all_denies_with_503_and_refuses_a_rate() {
    let service = ConcurrencyLayer::for_all("concurrency 1").unwrap();
    let service = service.layer(SlowService(InFlightCount::default()));
    let _one = service.clone().oneshot(request("/")).await.unwrap();
    assert_eq!(service.oneshot(request("/")).await.unwrap().status(), 503);
    let error = ConcurrencyLayer::for_all("100/s").unwrap_err().to_string();
    assert!(error.contains("give it to a RateLimitLayer"), "{error}");
}

#[tokio::test]
async fn a_request_whose_key_was_pending_holds_a_permit() {
    let owner = Key::by_async(|head| {
        let user = head.header("x-user").map(str::to_owned);
        async move { user }
    });
    let layer = ConcurrencyLayer::new(Limit::new("user", "concurrency 1").unwrap().key(owner));
    let service = layer.unwrap().layer(SlowService(InFlightCount::default()));
    let of = |user: &str| get("/").header("x-user", user).body(Body::default()).unwrap();
    let one = service.clone().oneshot(of("a")).await.unwrap();
    assert_eq!(service.clone().oneshot(of("a")).await.unwrap().status(), 429);
    assert_eq!(service.clone().oneshot(of("b")).await.unwrap().status(), 200);
    drop(one);
    assert_eq!(service.oneshot(of("a")).await.unwrap().status(), 200);
}
