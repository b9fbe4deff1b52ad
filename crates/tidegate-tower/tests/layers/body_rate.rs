//! Bodies whose bytes are limited per second, in tokio's paused time.

use crate::fixture::{Body, get};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidegate::clock::TokioClock;
use tidegate::{Gate, Limiter};
use tidegate_tower::body::ThrottledBody;
use tidegate_tower::{DownloadRateLayer, Limit, UploadRateLayer};
use tokio::time::Instant;
use tower::util::ServiceExt;
use tower_layer::Layer;

fn limiter(rule: &str) -> Limiter<TokioClock> {
    Limiter::with_clock(rule.parse().unwrap(), TokioClock::new())
}

/// A body of a given number of frames, which counts the frames that were read.
fn pieces(
    count: usize,
    bytes: usize,
    read: &Arc<AtomicUsize>,
) -> impl http_body::Body<Data = Bytes, Error = Infallible> + Unpin + use<> {
    let read = Arc::clone(read);
    let frames = (0..count).map(move |_| {
        read.fetch_add(1, Ordering::SeqCst);
        Ok(Frame::data(Bytes::from(vec![7; bytes])))
    });
    StreamBody::new(futures_util::stream::iter(frames))
}

#[tokio::test(start_paused = true)]
async fn a_body_takes_as_long_as_its_bytes() {
    let read = Arc::default();
    let body = ThrottledBody::by_key(pieces(10, 500, &read), limiter("1000/s burst 1000"), b"a");
    let start = Instant::now();
    assert_eq!(body.collect().await.unwrap().to_bytes().len(), 5_000);
    let ms = start.elapsed().as_millis();
    assert!((4_000..4_020).contains(&ms), "a burst of 1000, then 4000 at 1000/s: {ms} ms");
}

#[tokio::test(start_paused = true)]
async fn a_piece_larger_than_the_burst_is_cut_and_nothing_is_lost() {
    let read = Arc::default();
    let clock = TokioClock::new();
    let gate = Gate::with_clock("100/s burst 7".parse().unwrap(), clock);
    let mut body = ThrottledBody::through(pieces(2, 50, &read), gate);
    let mut lengths = Vec::new();
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        assert!(data.iter().all(|byte| *byte == 7));
        lengths.push(data.len());
    }
    assert_eq!(lengths.iter().sum::<usize>(), 100);
    assert!(lengths.iter().all(|length| *length <= 7));
}

#[tokio::test(start_paused = true)]
async fn the_sender_is_held_back_while_a_frame_waits() {
    let read = Arc::default();
    let mut body = ThrottledBody::by_key(pieces(10, 100, &read), limiter("100/s burst 100"), b"a");
    body.frame().await.unwrap().unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(500), body.frame()).await;
    assert!(waiting.is_err());
    assert_eq!(
        read.load(Ordering::SeqCst),
        2,
        "one was passed on, one waits, and no more were read"
    );
    let start = Instant::now();
    body.frame().await.unwrap().unwrap();
    assert!(
        start.elapsed().as_millis() <= 510,
        "a frame that has waited half a second keeps its turn"
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_dropped_gives_its_turn_back() {
    let (read, limiter) = (Arc::default(), limiter("100/s burst 100"));
    let mut body = ThrottledBody::by_key(pieces(10, 100, &read), limiter.clone(), b"a");
    body.frame().await.unwrap().unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(10), body.frame()).await;
    assert!(waiting.is_err());
    drop(body);
    let wait = limiter.request(&b"a"[..]).cost(100).reserve().unwrap().wait().as_micros();
    assert!(wait <= 990_000, "only what flowed is charged: {wait} us");
}

#[tokio::test(start_paused = true)]
async fn trailers_are_passed_on_and_the_length_is_reported() {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    let whole = http_body_util::Full::new(Bytes::from(vec![1; 30]));
    let with_trailers = whole.with_trailers(std::future::ready(Some(Ok(trailers))));
    let body = ThrottledBody::by_key(with_trailers, limiter("10/s burst 10"), b"a");
    let collected = body.collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
    let whole = http_body_util::Full::new(Bytes::from(vec![1; 30]));
    let mut body = ThrottledBody::by_key(whole, limiter("10/s burst 10"), b"a");
    assert_eq!(http_body::Body::size_hint(&body).exact(), Some(30));
    body.frame().await.unwrap().unwrap();
    assert_eq!(http_body::Body::size_hint(&body).exact(), Some(20));
}

#[tokio::test(start_paused = true)]
async fn requests_and_responses_are_paced_by_their_layers() {
    let limit = || Limit::over("bytes", limiter("100/s burst 100"));
    let echo = |request: Request<ThrottledBody<Body, TokioClock>>| async move {
        let bytes = request.into_body().collect().await.unwrap().to_bytes();
        Ok::<_, Infallible>(Response::new(Body::from(bytes)))
    };
    let up = UploadRateLayer::new(limit()).unwrap().layer(tower::service_fn(echo));
    let both = DownloadRateLayer::new(limit()).unwrap().layer(up);
    let request = get("/").body(Body::from(vec![1; 300])).unwrap();
    let start = Instant::now();
    let response = both.oneshot(request).await.unwrap();
    assert_eq!(start.elapsed().as_millis() / 100, 20, "two seconds for 200 more than the burst");
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(bytes.len(), 300);
    assert_eq!(start.elapsed().as_millis() / 100, 40, "and two more on the way back");
}

#[tokio::test]
async fn a_missing_peer_is_reported_by_byte_rate_layers() {
    let layer = DownloadRateLayer::per_ip("100/s").unwrap();
    let reply = crate::fixture::ask(&layer.layer(crate::fixture::Inner), get("/")).await;
    assert_eq!(reply.status, 500);
    assert!(reply.body.contains("into_make_service_with_connect_info"), "{}", reply.body);
    let found = layer.peer(|_| "192.0.2.7".parse().ok()).layer(crate::fixture::Inner);
    assert_eq!(
        crate::fixture::ask(&found, get("/")).await.status,
        200,
        "the advice of the error works"
    );
}
