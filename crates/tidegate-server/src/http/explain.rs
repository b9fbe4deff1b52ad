//! `/v1/explain`: which limits `/v1/authorize` would ask about a request, and why: this one, as a proxy would send it,
//! or one that the body describes.

use super::authorize::cost;
use super::original::original;
use super::page::{Answered, JSON, Page};
use super::problem::Problem;
use super::query::parameters;
use crate::explain::{Asked, hint};
use crate::matching::Request;
use crate::server::Server;
use http::StatusCode;
use http::request::Parts;
use std::net::{IpAddr, SocketAddr};

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
    tell(server, &original, Some(peer.ip()), asked).await
}

/// The same about a request that is described.
pub(super) async fn explain_asked(server: &Server, body: &[u8]) -> Result<Answered, Problem> {
    // serde would read the members from an array, too.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Problem::bad(
            "the body must be an object: {\"method\": \"GET\", \"path\": \"/\"}",
        ));
    }
    let asked: Asked = serde_json::from_slice(body)
        .map_err(|error| Problem::bad(format!("the body cannot be read: {error}")))?;
    if let Some(wrong) = asked.wrong() {
        return Err(Problem::bad(wrong));
    }
    let config = server.config();
    let request = asked.request(&config.server.trusted_proxies);
    tell(server, &request, asked.ip, asked.cost).await
}

async fn tell(
    server: &Server,
    request: &Request<'_>,
    peer: Option<IpAddr>,
    cost: u64,
) -> Result<Answered, Problem> {
    let mut explanation = crate::explain::explain(&server.engine, request, cost).await?;
    explanation.hint = hint(peer, request, &server.config().server.trusted_proxies);
    Ok(Page::new(StatusCode::OK).body(JSON, |out| {
        serde_json::to_writer(out, &explanation).expect("it has no maps whose keys are not text");
    }))
}
