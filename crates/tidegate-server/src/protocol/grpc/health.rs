//! gRPC's own health service: whether the server still takes requests.
//!
//! Always   It needs no token: who asks learns only whether to ask somebody else.

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

/// How it is now, and again when it drains. Ends then: a stream must not hold up the end. All who watch are woken by the
/// drain, and until then nothing is done for any of them.
pub(super) struct Watch {
    /// What has not been told yet of how it is now.
    now: Option<ServingStatus>,
    /// Taken when it has come.
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
        if !is_known(&request.get_ref().service) {
            return Err(Status::not_found("there is no such service here"));
        }
        Ok(Response::new(response(serving(&self.0))))
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Watch>, Status> {
        let now = match (serving(&self.0), is_known(&request.get_ref().service)) {
            (ServingStatus::Serving, false) => Some(ServingStatus::ServiceUnknown),
            (ServingStatus::Serving, true) => Some(ServingStatus::Serving),
            // The drain has come already, and is told below.
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

/// The server as a whole, or its one service.
fn is_known(service: &str) -> bool {
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
    use crate::protocol::http::tests::Bench;
    use tonic::codegen::tokio_stream::StreamExt;

    /// What is heard next.
    async fn next(watch: &mut Watch) -> Option<ServingStatus> {
        watch.next().await.map(|told| told.unwrap().status())
    }

    #[test]
    fn all_who_watch_are_woken_by_the_drain_and_take_no_timer() {
        // A runtime without timers: who wants one panics.
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(are_woken_by_the_drain());
    }

    async fn are_woken_by_the_drain() {
        let bench = Bench::new();
        let health = ServerHealth(Arc::clone(&bench.server));
        let about =
            |service: &str| Request::new(HealthCheckRequest { service: service.to_owned() });
        let mut known = health.watch(about(NAME)).await.unwrap().into_inner();
        let mut strange = health.watch(about("other")).await.unwrap().into_inner();
        assert_eq!(next(&mut known).await, Some(ServingStatus::Serving));
        assert_eq!(next(&mut strange).await, Some(ServingStatus::ServiceUnknown));
        bench.server.status.drain.begin();
        let mut late = health.watch(about(NAME)).await.unwrap().into_inner();
        for watch in [&mut known, &mut strange, &mut late] {
            assert_eq!(next(watch).await, Some(ServingStatus::NotServing));
            assert_eq!(next(watch).await, None);
        }
    }
}
