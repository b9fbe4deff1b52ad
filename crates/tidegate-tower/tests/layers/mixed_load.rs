//! A million requests (T13), which are served or rejected, fail, panic, or are given up at some await; some bodies are not
//! read to their end.
//!
//! Always   Every run makes the same requests.

use crate::concurrency::{QUIET_PANIC, request};
use crate::fixture::Body;
use http::{Request, Response};
use http_body_util::BodyExt;
use std::time::Duration;
use tower::util::ServiceExt;
use tower_service::Service;

/// Requests at a time: all of them are in memory until they have ended.
const ROUND_TURNS: u64 = 20_000;
/// The number that T13 requires.
const TURNS: u64 = 1_000_000;

/// The error of a service whose upstream was too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamTimeout;

/// The number of requests by how they ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndCounts {
    pub(crate) served: u64,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    pub(crate) panicked: u64,
    pub(crate) given_up: u64,
}

impl EndCounts {
    /// Checks that each kind of end was tested.
    fn assert_all_happened(&self) {
        let Self { served, refused, failed, panicked, given_up } = *self;
        let least = [served, refused, failed, panicked, given_up].into_iter().min();
        assert!(least > Some(20), "{self:?}");
    }
}

/// How a request with a response ended.
enum End {
    Served,
    Refused,
    Failed,
}

/// Sends requests to the service, four each millisecond.
pub(crate) async fn run<S, R>(service: &S) -> EndCounts
where
    S: Service<Request<Body>, Response = Response<R>, Error = UpstreamTimeout, Future: Send>
        + Clone
        + Send
        + 'static,
    R: http_body::Body<Data: Send, Error: std::fmt::Debug> + Send + 'static,
{
    let mut ends = EndCounts::default();
    for first in (0..TURNS).step_by(usize::try_from(ROUND_TURNS).unwrap()) {
        let mut tasks = tokio::task::JoinSet::new();
        for turn in first..first + ROUND_TURNS {
            let service = service.clone();
            tasks.spawn(async move {
                tokio::time::sleep(Duration::from_millis((turn - first) / 4)).await;
                // Some requests are given up, each at another await.
                let patience = Duration::from_millis(turn % 61);
                tokio::time::timeout(patience, one(service, turn)).await
            });
        }
        while let Some(end) = tasks.join_next().await {
            *match end {
                Ok(Ok(End::Served)) => &mut ends.served,
                Ok(Ok(End::Refused)) => &mut ends.refused,
                Ok(Ok(End::Failed)) => &mut ends.failed,
                Ok(Err(_)) => &mut ends.given_up,
                Err(error) => {
                    assert_is_quiet(error);
                    &mut ends.panicked
                }
            } += 1;
        }
    }
    ends.assert_all_happened();
    ends
}

/// A panic that was not requested is that of an assertion, in the handler or here: it is passed on.
fn assert_is_quiet(error: tokio::task::JoinError) {
    let panic = error.into_panic();
    if panic.downcast_ref::<&str>() != Some(&QUIET_PANIC) {
        std::panic::resume_unwind(panic);
    }
}

async fn one<S, R>(service: S, turn: u64) -> End
where
    S: Service<Request<Body>, Response = Response<R>, Error = UpstreamTimeout>,
    R: http_body::Body<Error: std::fmt::Debug>,
{
    // 4, 7, 11 and 61 have no common divisor, so every combination occurs.
    let path = match turn % 11 {
        0 => "/late",
        3 => "/panic/call",
        6 => "/panic/await",
        9 => "/busy",
        _ => "/",
    };
    let Ok(response) = service.oneshot(request(path)).await else { return End::Failed };
    let end = if response.status().is_success() { End::Served } else { End::Refused };
    let mut body = Box::pin(response.into_body());
    if turn.is_multiple_of(7) {
        let _ = body.frame().await;
    } else {
        body.collect().await.unwrap();
    }
    end
}
