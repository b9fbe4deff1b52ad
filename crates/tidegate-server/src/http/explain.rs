//! `/v1/explain`: which limits `/v1/authorize` would ask about the same request, and why.

use super::authorize::cost;
use super::original::original;
use super::page::{Answered, JSON, Page};
use super::problem::Problem;
use super::query::parameters;
use crate::server::Server;
use http::StatusCode;
use http::request::Parts;
use std::net::SocketAddr;

/// Says what would happen, and takes nothing.
pub(super) async fn explain(
    server: &Server,
    request: &Parts,
    peer: SocketAddr,
) -> Result<Answered, Problem> {
    let mut asked = 1;
    for (name, value) in parameters(request.uri.query().unwrap_or_default()) {
        match &*name {
            b"cost" => asked = cost(&value)?,
            _ => return Err(Problem::bad("unknown parameter; there is only `cost`")),
        }
    }
    let config = server.config();
    let original = original(request, peer, &config.server.trusted_proxies);
    let explanation = crate::explain::explain(&server.engine, &original, asked).await?;
    Ok(Page::new(StatusCode::OK).body(JSON, |out| {
        serde_json::to_writer(out, &explanation).expect("it has no maps whose keys are not text");
    }))
}
