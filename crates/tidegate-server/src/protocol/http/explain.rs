//! `/v1/explain`: which limits count a request, and why. The request is this one, as a proxy would send it to `/v1/authorize`, or an
//! HTTP or Envoy request that the body describes.

use super::authorize::cost;
use super::original_request::{HeaderFamily, OriginalRequest};
use super::problem::Problem;
use super::query::parameters;
use super::response::{JSON, RawResponse, ResponseBuilder};
use crate::explain::{Explanation, RequestDescription, explain_description, proxy_hint};
use crate::server::Server;
use http::StatusCode;
use http::request::Parts;
use std::net::SocketAddr;

/// Explains what `/v1/authorize` would answer, and charges nothing.
pub(super) async fn explain(
    server: &Server,
    request: &Parts,
    peer: SocketAddr,
) -> Result<RawResponse, Problem> {
    let (mut requested_cost, mut from) = (1, None);
    for (name, value) in parameters(request.uri.query().unwrap_or_default()) {
        match &*name {
            b"cost" => requested_cost = cost(&value)?,
            b"from" => from = Some(HeaderFamily::named(&value)?),
            _ => return Err(Problem::bad("unknown parameter; there are cost, from")),
        }
    }
    let original = OriginalRequest::read(request, from)?;
    let config = server.config();
    let original = original.request(peer, &config.server);
    let mut explanation = crate::explain::explain(&server.engine, &original, requested_cost).await;
    explanation.hint = proxy_hint(Some(peer.ip()), &original, &config.server);
    Ok(respond(&explanation))
}

/// Explains a request that the body describes.
pub(super) async fn explain_described(
    server: &Server,
    body: &[u8],
) -> Result<RawResponse, Problem> {
    // serde would also accept an array of the members' values.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Problem::bad(
            "the body must be an object: {\"method\": \"GET\", \"path\": \"/\"}",
        ));
    }
    let described: RequestDescription = serde_json::from_slice(body)
        .map_err(|error| Problem::bad(format!("the body cannot be read: {error}")))?;
    if let Some(wrong) = described.wrong() {
        return Err(Problem::bad(wrong));
    }
    let config = server.config();
    let explanation = explain_description(&server.engine, &described, &config.server).await;
    Ok(respond(&explanation))
}

fn respond(explanation: &Explanation) -> RawResponse {
    ResponseBuilder::new(StatusCode::OK).body(JSON, |out| {
        serde_json::to_writer(out, explanation).expect("all keys of its maps are strings");
    })
}
