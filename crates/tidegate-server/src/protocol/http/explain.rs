//! `/v1/explain`: which limits `/v1/authorize` would ask about a request, and why: this one, as a proxy would send it,
//! or one that the body describes, HTTP's or Envoy's.

use super::authorize::cost;
use super::original::{Family, Original};
use super::page::{Answered, JSON, Page};
use super::problem::Problem;
use super::query::parameters;
use crate::explain::{Explanation, RequestDescription, explain_description, proxy_hint};
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
    let (mut asked, mut from) = (1, None);
    for (name, value) in parameters(request.uri.query().unwrap_or_default()) {
        match &*name {
            b"cost" => asked = cost(&value)?,
            b"from" => from = Some(Family::named(&value)?),
            _ => return Err(Problem::bad("unknown parameter; there are cost, from")),
        }
    }
    let original = Original::read(request, from)?;
    let config = server.config();
    let original = original.request(peer, &config.server);
    let mut explanation = crate::explain::explain(&server.engine, &original, asked).await;
    explanation.hint = proxy_hint(Some(peer.ip()), &original, &config.server);
    Ok(tell(&explanation))
}

/// The same about a request that is described.
pub(super) async fn explain_asked(server: &Server, body: &[u8]) -> Result<Answered, Problem> {
    // serde would read the members from an array, too.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Problem::bad(
            "the body must be an object: {\"method\": \"GET\", \"path\": \"/\"}",
        ));
    }
    let asked: RequestDescription = serde_json::from_slice(body)
        .map_err(|error| Problem::bad(format!("the body cannot be read: {error}")))?;
    if let Some(wrong) = asked.wrong() {
        return Err(Problem::bad(wrong));
    }
    let config = server.config();
    let explanation = explain_description(&server.engine, &asked, &config.server).await;
    Ok(tell(&explanation))
}

fn tell(explanation: &Explanation) -> Answered {
    Page::new(StatusCode::OK).body(JSON, |out| {
        serde_json::to_writer(out, explanation).expect("it has no maps whose keys are not text");
    })
}
