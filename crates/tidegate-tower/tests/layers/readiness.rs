//! Layers call the inner service only when it is ready, once each time.

use crate::fixture::Body;
use http::{Request, Response};
use std::convert::Infallible;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate::Limiter;
use tidegate::clock::TokioClock;
use tidegate::load::{Adaptive, AdaptiveGate, Priority, Shedder};
use tidegate_tower::{
    AdaptiveLayer, ConcurrencyLayer, DownloadRateLayer, Key, Limit, OutgoingLayer, RateLimitLayer,
    ShedLayer, UploadRateLayer,
};
use tokio::time::Instant;
use tower::util::ServiceExt;
use tower_layer::Layer;
use tower_service::Service;

/// How long a call takes.
const WORK: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A service that is ready at the second poll, for one call, and panics if it is called when it is not ready. Its clones are
/// not ready.
#[derive(Debug, Default)]
struct ReadinessChecked {
    was_polled: bool,
    is_ready: bool,
}

impl Clone for ReadinessChecked {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<B> Service<Request<B>> for ReadinessChecked {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if !self.was_polled {
            self.was_polled = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        assert!(self.is_ready, "called when it is not ready");
        *self = Self::default();
        Box::pin(async {
            tokio::time::sleep(WORK).await;
            Ok(Response::new(Body::default()))
        })
    }
}

/// Calls one service repeatedly, each time as soon as it is ready. Returns the statuses and the total time.
async fn call_often<S, R>(mut service: S, calls: usize) -> (Vec<u16>, u128)
where
    S: Service<Request<Body>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Debug + Send + 'static,
    R: Send + 'static,
{
    let (start, mut tasks) = (Instant::now(), Vec::new());
    for _ in 0..calls {
        let future = service.ready().await.unwrap().call(Request::new(Body::default()));
        tasks.push(tokio::spawn(async { future.await.unwrap().status().as_u16() }));
    }
    let mut statuses = Vec::new();
    for task in tasks {
        statuses.push(task.await.unwrap());
    }
    (statuses, start.elapsed().as_millis() / 10 * 10)
}

fn limiter(rule: &str) -> Limiter<TokioClock> {
    Limiter::with_clock(rule.parse().unwrap(), TokioClock::new())
}

fn limit(rule: &str) -> Limit<TokioClock> {
    Limit::over("api", limiter(rule))
}

/// Returns a limit whose key has to be waited for.
fn by_pending_key(rule: &str) -> Limit<TokioClock> {
    let later = |_: &tidegate_tower::Head<'_>| async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Some("alice")
    };
    limit(rule).key(Key::by_async(later))
}

fn rate(limit: Limit<TokioClock>) -> RateLimitLayer<TokioClock> {
    RateLimitLayer::new(limit).unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_limit_calls_only_ready_services() {
    let service = rate(limit("100/s")).layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await, (vec![200; 4], 50));
    let service = rate(limit("10/s burst 1")).wait(WAIT_MAX).layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await, (vec![200; 4], 350));
    let service = rate(limit("10/s queue capacity 5")).layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await, (vec![200; 4], 350));
    let service = rate(by_pending_key("100/s")).layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await, (vec![200; 4], 60));
    let service = rate(limit("2/h")).layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await.0, [200, 200, 429, 429]);
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_was_changed_to_one_with_waits_calls_only_ready_services() {
    let limiter = limiter("100/s");
    let service = rate(Limit::over("api", limiter.clone())).layer(ReadinessChecked::default());
    limiter.set_rule("10/s queue capacity 5".parse().unwrap());
    assert_eq!(call_often(service, 4).await, (vec![200; 4], 350));
}

#[tokio::test(start_paused = true)]
async fn several_limits_call_only_ready_services() {
    let both = |rule| rate(limit("1000/s")).and(limit(rule)).unwrap();
    let service = both("100/s").layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await, (vec![200; 4], 50));
    let service = both("10/s burst 1").wait(WAIT_MAX).layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await.0, [200; 4]);
    let service = both("10/s queue capacity 5").layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await, (vec![200; 4], 350));
    let service = both("2/h").layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await.0, [200, 200, 429, 429]);
}

#[tokio::test(start_paused = true)]
async fn a_fallback_service_is_called_only_when_it_is_ready() {
    for patience in [Duration::ZERO, Duration::from_millis(1)] {
        let layer = rate(limit("1/h")).wait(patience).fallback_service(ReadinessChecked::default());
        let statuses = call_often(layer.layer(ReadinessChecked::default()), 3).await.0;
        assert_eq!(statuses, [200; 3], "the fallback service serves the second and the third");
        for limit in [limit("concurrency 1"), by_pending_key("concurrency 1")] {
            let layer = ConcurrencyLayer::new(limit).unwrap().wait(patience);
            let layer = layer.fallback_service(ReadinessChecked::default());
            let statuses = call_often(layer.layer(ReadinessChecked::default()), 3).await.0;
            assert_eq!(statuses, [200; 3], "the fallback service serves the second and the third");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_layer_calls_only_ready_services() {
    let layer = |limit| ConcurrencyLayer::new(limit).unwrap();
    let service = layer(limit("concurrency 9")).layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await, (vec![200; 4], 50));
    let service = layer(limit("concurrency 1")).wait(WAIT_MAX).layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await, (vec![200; 4], 200));
    let service =
        layer(by_pending_key("concurrency 1")).wait(WAIT_MAX).layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await, (vec![200; 4], 210));
    let service = layer(limit("concurrency 1")).layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 3).await.0, [200, 429, 429]);
}

#[tokio::test(start_paused = true)]
async fn load_layers_call_only_ready_services() {
    let gate = |max| {
        AdaptiveGate::with_clock(
            Adaptive::vegas().between(1..=max).starting_at(max),
            TokioClock::new(),
        )
    };
    let service = AdaptiveLayer::new(gate(9)).layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await, (vec![200; 4], 50));
    let service = AdaptiveLayer::new(gate(1)).wait(WAIT_MAX).layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await, (vec![200; 4], 200));
    let service = AdaptiveLayer::new(gate(1)).layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 3).await.0, [200, 503, 503]);
    let shed = ShedLayer::new(Shedder::builder().in_flight_max(2).build());
    let service = shed.priority(|_| Priority::Critical).layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 3).await.0, [200, 200, 503]);
}

#[tokio::test(start_paused = true)]
async fn outgoing_calls_are_made_only_by_ready_clients() {
    let service =
        OutgoingLayer::over(limiter("100/s"), WAIT_MAX).layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await, (vec![200; 4], 50));
    let service =
        OutgoingLayer::over(limiter("10/s burst 1"), WAIT_MAX).layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await, (vec![200; 4], 350));
    let service =
        OutgoingLayer::over(limiter("concurrency 1"), WAIT_MAX).layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await, (vec![200; 4], 200));
}

#[tokio::test(start_paused = true)]
async fn body_rate_layers_call_only_ready_services() {
    let service = UploadRateLayer::for_all("1000/s").unwrap().layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await.0, [200; 4]);
    let service = DownloadRateLayer::for_all("1000/s").unwrap().layer(ReadinessChecked::default());
    assert_eq!(call_often(service, 4).await.0, [200; 4]);
}

#[tokio::test]
#[should_panic(expected = "called when it is not ready")]
async fn a_call_of_a_clone_that_is_not_ready_is_detected() {
    let mut service = ReadinessChecked::default();
    ServiceExt::<Request<Body>>::ready(&mut service).await.unwrap();
    drop(service.clone().call(Request::new(Body::default())));
}
