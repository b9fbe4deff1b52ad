//! gRPC's own health service: whether the server still takes requests.
//!
//! Always   It needs no token: who asks learns only whether to ask somebody else.

use super::NAME;
use crate::server::Server;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Interval, interval};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// How soon who watches is told.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The health of a server.
#[derive(Debug)]
pub(super) struct ServerHealth(pub(super) Arc<Server>);

/// How it is now, and again when that changes. Ends when it drains: a stream must not hold up the end.
#[derive(Debug)]
pub(super) struct Watch {
    server: Arc<Server>,
    is_known: bool,
    looks: Interval,
    told: Option<ServingStatus>,
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
        Ok(Response::new(Watch {
            server: Arc::clone(&self.0),
            is_known: is_known(&request.get_ref().service),
            looks: interval(LOOK_EVERY),
            told: None,
        }))
    }
}

impl Stream for Watch {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if self.told == Some(ServingStatus::NotServing) {
                return Poll::Ready(None);
            }
            ready!(self.looks.poll_tick(cx));
            let status = match (serving(&self.server), self.is_known) {
                (ServingStatus::Serving, false) => ServingStatus::ServiceUnknown,
                (status, _) => status,
            };
            if self.told.replace(status) != Some(status) {
                return Poll::Ready(Some(Ok(response(status))));
            }
        }
    }
}

/// The server as a whole, or its one service.
fn is_known(service: &str) -> bool {
    service.is_empty() || service == NAME
}

fn serving(server: &Server) -> ServingStatus {
    if server.status.is_draining.load(Ordering::Relaxed) {
        ServingStatus::NotServing
    } else {
        ServingStatus::Serving
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}
