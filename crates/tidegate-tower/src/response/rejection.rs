//! The responses to rejected requests.
//!
//! Always   HTTP requests get a problem document (RFC 9457) that says what to do, gRPC calls a status. Neither may be cached.

use crate::head::Head;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use std::sync::Arc;
use tidegate::{Decision, Retry, Span, Verdict};
use tidegate_http::{
    ByteWriter as _, EffectiveDecision, LimitStatus, NO_STORE, PROBLEM_JSON, PROBLEM_TYPES,
    millis_ceil, put_denial,
};

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Makes the response of a program to a denied request.
pub(crate) type MakeRejection =
    Arc<dyn Fn(&Head<'_>, &Denial<'_>) -> Response<Bytes> + Send + Sync>;

/// Why a request is denied, for a response of your own.
///
/// ```
/// use http::Response;
/// use tidegate_tower::{Denial, RateLimitLayer};
///
/// let layer = RateLimitLayer::per_ip("100/s")?.fallback(|_, denial: &Denial<'_>| {
///     Response::new(format!("please wait {:?}", denial.retry_after()))
/// });
/// # Ok::<(), tidegate_tower::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Denial<'a> {
    statuses: &'a [LimitStatus<'a>],
    decision: Decision,
}

impl<'a> Denial<'a> {
    pub(crate) fn new(statuses: &'a [LimitStatus<'a>], decision: Decision) -> Self {
        Self { statuses, decision }
    }

    /// Returns the joint decision of all limits.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Returns after how long to retry, if that is known.
    pub fn retry_after(&self) -> Option<Span> {
        self.decision.retry_after()
    }

    /// Returns the names of the limits that deny.
    pub fn limits(&self) -> impl Iterator<Item = &'a str> {
        let denying = self.statuses.iter().filter(|status| status.decision.is_deny());
        denying.map(|status| status.name)
    }
}

/// Returns the response to a request that limits deny, without the header fields of the limits.
pub(crate) fn denied(
    head: &Head<'_>,
    status: StatusCode,
    statuses: &[LimitStatus<'_>],
    decision: Decision,
) -> Response<Bytes> {
    if head.is_grpc() {
        return grpc(RESOURCE_EXHAUSTED, &message(statuses, decision));
    }
    let mut body = Vec::with_capacity(384);
    put_denial(&mut body, status, statuses, &EffectiveDecision::enforced(decision), |_| ());
    problem(status, body)
}

// Status codes of gRPC.
const INVALID_ARGUMENT: u8 = 3;
const RESOURCE_EXHAUSTED: u8 = 8;
const INTERNAL: u8 = 13;
const UNAVAILABLE: u8 = 14;

/// Returns the response to a request that lacks the key of a limit.
pub(crate) fn without_key(
    head: &Head<'_>,
    status: StatusCode,
    limit: &str,
    key: &str,
) -> Response<Bytes> {
    let detail = format!("the limit `{limit}` counts by `{key}`, which the request does not have");
    problem_with_detail(head, (status, INVALID_ARGUMENT), BLANK, &detail)
}

/// Says what to do if a limit counts by address and the server does not provide addresses.
pub(crate) const NO_PEER: &str = "counts by address, and the server does not provide the address of the peer. In axum, \
    serve the app with `.into_make_service_with_connect_info::<SocketAddr>()` and enable the feature `axum` of \
    tidegate-tower, which is for axum 0.8; elsewhere add `tidegate_tower::Peer` to the extensions of each request, or set \
    `.peer(…)` to find it. To allow requests without an address, set `.on_missing(…)`";

/// Returns the response if the server does not provide addresses: a mistake that the developer must see.
pub(crate) fn without_peer(head: &Head<'_>, limit: &str) -> Response<Bytes> {
    let detail = format!("the limit `{limit}` {NO_PEER}");
    problem_with_detail(head, (StatusCode::INTERNAL_SERVER_ERROR, INTERNAL), BLANK, &detail)
}

/// Returns the response of an overloaded service, without `Retry-After`.
pub(crate) fn reduced_capacity(head: &Head<'_>, detail: &str) -> Response<Bytes> {
    let kind = format!("{PROBLEM_TYPES}temporary-reduced-capacity");
    problem_with_detail(head, (StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE), &kind, detail)
}

/// The type of a problem that is described by its status alone.
const BLANK: &str = "about:blank";

fn problem_with_detail(
    head: &Head<'_>,
    (status, code): (StatusCode, u8),
    kind: &str,
    detail: &str,
) -> Response<Bytes> {
    if head.is_grpc() {
        return grpc(code, detail);
    }
    let mut body = Vec::with_capacity(384);
    body.put(br#"{"type":"#);
    body.put_json(kind);
    body.put(br#","title":"#);
    body.put_json(status.canonical_reason().unwrap_or("Refused"));
    body.put(br#","status":"#);
    body.put_number(status.as_u16().into());
    body.put(br#","detail":"#);
    body.put_json(detail);
    body.put(b"}");
    problem(status, body)
}

fn problem(status: StatusCode, body: Vec<u8>) -> Response<Bytes> {
    // Three more fields are added.
    let mut headers = HeaderMap::with_capacity(6);
    headers.insert(CONTENT_TYPE, PROBLEM_JSON);
    headers.insert(CACHE_CONTROL, NO_STORE);
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Returns a gRPC response that consists of a status only.
fn grpc(code: u8, message: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert(CACHE_CONTROL, NO_STORE);
    headers.insert(GRPC_STATUS, HeaderValue::from(u16::from(code)));
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'%';
    let message: Vec<u8> = message.bytes().filter(is_plain).collect();
    if let Ok(message) = HeaderValue::from_bytes(&message) {
        headers.insert(GRPC_MESSAGE, message);
    }
    response
}

/// Returns the message of a gRPC status, with times rounded for people.
fn message(statuses: &[LimitStatus<'_>], decision: Decision) -> String {
    let retry = match decision.verdict {
        Verdict::Deny(Retry::After(span)) if span < Span::from_secs(1) => {
            Retry::After(Span::from_millis(millis_ceil(span)))
        }
        Verdict::Deny(Retry::After(span)) => Retry::After(Span::from_secs(span.as_secs_ceil())),
        Verdict::Deny(retry) => retry,
        Verdict::Allow | Verdict::Wait(_) => Retry::OnRelease,
    };
    let names: Vec<&str> = Denial::new(statuses, decision).limits().collect();
    format!("{} by {}", decision.deny(retry), names.join(", "))
}
