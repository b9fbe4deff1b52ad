//! As many wait as may, and one more comes.

use super::{Bench, limit};
use crate::config::Config;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use tidegate::Span;

const LINE: &str = "/v1/authorize?limit=line&key=a";

#[tokio::test]
async fn t47_one_too_many_to_wait_is_refused_at_once_and_not_charged() {
    let mut config =
        Config { limits: vec![limit("line", "1/s queue capacity 9")], ..Config::default() };
    config.server.caps.waiting_max = 1;
    let bench = Bench::with(config);
    assert_eq!(bench.get(LINE).await.status, 204, "the first need not wait");
    let mut waits = Box::pin(bench.get(LINE));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    for number in 1..=3 {
        let refused = bench.get(LINE).await;
        assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")));
        assert!(refused.text.contains("temporary-reduced-capacity"), "{}", refused.text);
        assert!(refused.detail().starts_with("too many requests wait"), "{}", refused.text);
        assert_eq!(bench.server.status.refused.http.load(Ordering::Relaxed), number);
    }
    let at_once = bench.check(r#"{"rule":"9/s","key":"a"}"#).await;
    assert_eq!(at_once.status, 200, "who need not wait is not too many");
    bench.clock.advance(Span::from_secs(1));
    assert_eq!(waits.await.status, 204);
    // Had the three been charged, its turn would come three seconds later.
    let mut next = Box::pin(bench.get(LINE));
    assert!(next.as_mut().poll(&mut context).is_pending());
    bench.clock.advance(Span::from_secs(1));
    assert_eq!(next.await.status, 204);
}

#[tokio::test]
async fn who_leaves_while_it_waits_makes_room() {
    let mut config =
        Config { limits: vec![limit("line", "1/s queue capacity 9")], ..Config::default() };
    config.server.caps.waiting_max = 1;
    let bench = Bench::with(config);
    bench.get(LINE).await;
    for _ in 0..3 {
        let mut waits = Box::pin(bench.get(LINE));
        assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(bench.server.status.waiting.load(Ordering::Relaxed), 1);
    }
    assert_eq!(bench.server.status.waiting.load(Ordering::Relaxed), 0);
}
