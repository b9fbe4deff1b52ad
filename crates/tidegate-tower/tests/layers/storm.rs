//! Requests that end in every way there is (T13): served, refused, failed, panicked, given up at some await, with a
//! body that is not read to its end.
//!
//! Always   The same turns in every run, a million of them.

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
pub(crate) struct Late;

/// How many ended how.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ends {
    pub(crate) served: u64,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    pub(crate) panicked: u64,
    pub(crate) given_up: u64,
}

impl Ends {
    /// A storm in which something never happened has not tested it.
    fn assert_all_happened(&self) {
        let Self { served, refused, failed, panicked, given_up } = *self;
        let least = [served, refused, failed, panicked, given_up].into_iter().min();
        assert!(least > Some(20), "{self:?}");
    }
}

/// What becomes of one request.
enum End {
    Served,
    Refused,
    Failed,
}

/// Sends requests to the service, four each millisecond.
pub(crate) async fn rage<S, R>(service: &S) -> Ends
where
    S: Service<Request<Body>, Response = Response<R>, Error = Late, Future: Send>
        + Clone
        + Send
        + 'static,
    R: http_body::Body<Data: Send, Error: std::fmt::Debug> + Send + 'static,
{
    let mut ends = Ends::default();
    for first in (0..TURNS).step_by(usize::try_from(ROUND_TURNS).unwrap()) {
        let mut tasks = tokio::task::JoinSet::new();
        for turn in first..first + ROUND_TURNS {
            let service = service.clone();
            tasks.spawn(async move {
                tokio::time::sleep(Duration::from_millis((turn - first) / 4)).await;
                // Given up at some await, each at another; most are not.
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
    S: Service<Request<Body>, Response = Response<R>, Error = Late>,
    R: http_body::Body<Error: std::fmt::Debug>,
{
    // 4, 7, 11 and 61 have no common divisor: everything meets everything.
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
