//! The token of a request: a bearer token or an API key.

use super::problem::Problem;
use crate::config::ServerConfig;
use crate::server::Server;
use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::sync::atomic::Ordering;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The request needs a token and has no valid one.
pub(super) struct NoToken;

/// Returns the request's valid token; `None` if none is needed.
pub(super) fn valid_token<'a>(
    server: &Server,
    headers: &'a HeaderMap,
) -> Result<Option<&'a [u8]>, NoToken> {
    let (bearer, api_key) = (bearer(headers), headers.get(API_KEY).map(HeaderValue::as_bytes));
    if server.admits(bearer) {
        return Ok(bearer);
    }
    if api_key.is_some() && server.admits(api_key) { Ok(api_key) } else { Err(NoToken) }
}

/// Returns the request's valid token, or a problem that says what to send.
pub(super) fn require_token<'a>(
    server: &Server,
    headers: &'a HeaderMap,
) -> Result<Option<&'a [u8]>, Problem> {
    if let Ok(token) = valid_token(server, headers) {
        return Ok(token);
    }
    if bearer(headers).is_some() || headers.contains_key(API_KEY) {
        server.status.wrong_tokens.http.fetch_add(1, Ordering::Relaxed);
    }
    Err(Problem::new(
        StatusCode::UNAUTHORIZED,
        "a token is needed: send it as `Authorization: Bearer …` or `X-Api-Key: …`",
    ))
}

/// Returns the token of `Authorization: Bearer`, for HTTP, gRPC and the admin listener. Whitespace around the token is ignored.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    bearer_in(headers.get(AUTHORIZATION)?)
}

/// Returns the token in a value of `Authorization`.
fn bearer_in(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Returns whether a field contains one of the server's own tokens: then it identifies the proxy and not the proxy's client.
pub(super) fn is_own_token(server: &ServerConfig, name: &HeaderName, value: &HeaderValue) -> bool {
    let offered = if *name == AUTHORIZATION {
        bearer_in(value)
    } else {
        (*name == API_KEY).then(|| value.as_bytes())
    };
    offered.is_some_and(|offered| server.tokens.iter().any(|token| token.is(offered)))
}
