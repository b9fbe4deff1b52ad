//! Tests of the maximum number of waiting requests.

use super::{Harness, limit};
use crate::config::Config;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use tidegate::Span;

const LINE: &str = "/v1/authorize?limit=line&key=a";

// T47
#[tokio::test]
async fn one_too_many_to_wait_is_refused_at_once_and_not_charged() {
    let mut config =
        Config { limits: vec![limit("line", "1/s queue capacity 9")], ..Config::default() };
    config.server.caps.waiting_max = 1;
    let harness = Harness::with(config);
    assert_eq!(harness.get(LINE).await.status, 204, "the first need not wait");
    let mut waits = Box::pin(harness.get(LINE));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    for number in 1..=3 {
        let refused = harness.get(LINE).await;
        assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")));
        assert!(refused.text.contains("temporary-reduced-capacity"), "{}", refused.text);
        assert!(refused.detail().starts_with("too many requests wait"), "{}", refused.text);
        assert_eq!(harness.server.status.refused.http.load(Ordering::Relaxed), number);
    }
    let at_once = harness.check(r#"{"rule":"9/s","key":"a"}"#).await;
    assert_eq!(at_once.status, 200, "a request that need not wait does not count");
    harness.clock.advance(Span::from_secs(1));
    assert_eq!(waits.await.status, 204);
    // If the three had been charged, its turn would come three seconds later.
    let mut next = Box::pin(harness.get(LINE));
    assert!(next.as_mut().poll(&mut context).is_pending());
    harness.clock.advance(Span::from_secs(1));
    assert_eq!(next.await.status, 204);
}

#[tokio::test]
async fn a_client_that_disconnects_while_waiting_frees_its_place() {
    let mut config =
        Config { limits: vec![limit("line", "1/s queue capacity 9")], ..Config::default() };
    config.server.caps.waiting_max = 1;
    let harness = Harness::with(config);
    harness.get(LINE).await;
    for _ in 0..3 {
        let mut waits = Box::pin(harness.get(LINE));
        assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(harness.server.status.waiting.load(Ordering::Relaxed), 1);
    }
    assert_eq!(harness.server.status.waiting.load(Ordering::Relaxed), 0);
}
