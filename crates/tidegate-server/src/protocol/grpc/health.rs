//! The gRPC health service: whether the server accepts requests.
//!
//! It needs no token, because it tells clients only whether to use another server.

use super::NAME;
use crate::server::Server;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// The health of a server.
#[derive(Debug)]
pub(super) struct ServerHealth(pub(super) Arc<Server>);

/// A stream of the present status and, when the server drains, of `NotServing`. It ends then, so that it does not delay the
/// shutdown. The drain wakes all streams, and until then they cost nothing.
pub(super) struct Watch {
    /// The present status, until it has been sent.
    now: Option<ServingStatus>,
    /// Resolves when the server drains.
    drain: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("now", &self.now).finish_non_exhaustive()
    }
}

#[tonic::async_trait]
impl Health for ServerHealth {
    type WatchStream = Watch;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if !is_own_service(&request.get_ref().service) {
            return Err(Status::not_found("there is no such service"));
        }
        Ok(Response::new(response(serving(&self.0))))
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Watch>, Status> {
        let now = match (serving(&self.0), is_own_service(&request.get_ref().service)) {
            (ServingStatus::Serving, false) => Some(ServingStatus::ServiceUnknown),
            (ServingStatus::Serving, true) => Some(ServingStatus::Serving),
            // The server already drains; the future below resolves at once.
            _ => None,
        };
        let drain = self.0.status.drain.begun();
        Ok(Response::new(Watch { now, drain: Some(Box::pin(drain)) }))
    }
}

impl Stream for Watch {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(now) = self.now.take() {
            return Poll::Ready(Some(Ok(response(now))));
        }
        let Some(drain) = &mut self.drain else { return Poll::Ready(None) };
        ready!(drain.as_mut().poll(cx));
        self.drain = None;
        Poll::Ready(Some(Ok(response(ServingStatus::NotServing))))
    }
}

/// Returns whether the name means the server as a whole or its one service.
fn is_own_service(service: &str) -> bool {
    service.is_empty() || service == NAME
}

fn serving(server: &Server) -> ServingStatus {
    if server.status.drain.has_begun() { ServingStatus::NotServing } else { ServingStatus::Serving }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::http::tests::Harness;
    use tonic::codegen::tokio_stream::StreamExt;

    /// Returns the next status.
    async fn next(watch: &mut Watch) -> Option<ServingStatus> {
        watch.next().await.map(|response| response.unwrap().status())
    }

    #[test]
    fn the_drain_wakes_all_streams_and_they_need_no_timer() {
        // This runtime has no timers: creating one panics.
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(drain_wakes_all_streams());
    }

    async fn drain_wakes_all_streams() {
        let harness = Harness::new();
        let health = ServerHealth(Arc::clone(&harness.server));
        let about =
            |service: &str| Request::new(HealthCheckRequest { service: service.to_owned() });
        let mut known = health.watch(about(NAME)).await.unwrap().into_inner();
        let mut unknown = health.watch(about("other")).await.unwrap().into_inner();
        assert_eq!(next(&mut known).await, Some(ServingStatus::Serving));
        assert_eq!(next(&mut unknown).await, Some(ServingStatus::ServiceUnknown));
        harness.server.status.drain.begin();
        let mut late = health.watch(about(NAME)).await.unwrap().into_inner();
        for watch in [&mut known, &mut unknown, &mut late] {
            assert_eq!(next(watch).await, Some(ServingStatus::NotServing));
            assert_eq!(next(watch).await, None);
        }
    }
}
