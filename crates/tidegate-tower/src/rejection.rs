//! What is answered to a request that goes no further.
//!
//! Always   HTTP is answered with a problem (RFC 9457) that says what to do; gRPC with a status, as its clients
//!          expect. What is refused may not be cached.

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

/// Makes a response of your own for whom a limit denies.
pub(crate) type MakeRejection =
    Arc<dyn Fn(&Head<'_>, &Denial<'_>) -> Response<Bytes> + Send + Sync>;

/// Why a request is denied: for responses of your own.
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
    told: &'a [LimitStatus<'a>],
    decision: Decision,
}

impl<'a> Denial<'a> {
    pub(crate) fn new(told: &'a [LimitStatus<'a>], decision: Decision) -> Self {
        Self { told, decision }
    }

    /// What all limits together decided.
    ///
    /// ```
    /// use tidegate_tower::Denial;
    ///
    /// fn is_for_ever(denial: &Denial<'_>) -> bool {
    ///     denial.decision().retry_after().is_none()
    /// }
    /// ```
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// After how long to ask again, where that is known.
    ///
    /// ```
    /// use tidegate_tower::Denial;
    ///
    /// fn seconds(denial: &Denial<'_>) -> u64 {
    ///     denial.retry_after().map_or(60, |span| span.as_secs_ceil())
    /// }
    /// ```
    pub fn retry_after(&self) -> Option<Span> {
        self.decision.retry_after()
    }

    /// The names of the limits that deny.
    ///
    /// ```
    /// use tidegate_tower::Denial;
    ///
    /// fn is_by(denial: &Denial<'_>, name: &str) -> bool {
    ///     denial.limits().any(|limit| limit == name)
    /// }
    /// ```
    pub fn limits(&self) -> impl Iterator<Item = &'a str> {
        self.told.iter().filter(|told| told.decision.is_deny()).map(|told| told.name)
    }
}

/// A denial, in the language of who asked. The fields that tell what is left are not in it yet.
pub(crate) fn denied(
    head: &Head<'_>,
    status: StatusCode,
    told: &[LimitStatus<'_>],
    decision: Decision,
) -> Response<Bytes> {
    if head.is_grpc() {
        return grpc(RESOURCE_EXHAUSTED, &text(told, decision));
    }
    let mut body = Vec::with_capacity(384);
    put_denial(&mut body, status, told, &EffectiveDecision::enforced(decision), |_| ());
    problem_of(status, body)
}

/// gRPC's words for: too much was asked.
const RESOURCE_EXHAUSTED: u8 = 8;
/// What was asked is not complete.
const INVALID_ARGUMENT: u8 = 3;
/// The server is not as it should be.
const INTERNAL: u8 = 13;
/// Not now: what 503 is in HTTP, and what clients may try again.
const UNAVAILABLE: u8 = 14;

/// The request has not what a limit counts by.
pub(crate) fn without_key(
    head: &Head<'_>,
    status: StatusCode,
    limit: &str,
    key: &str,
) -> Response<Bytes> {
    let detail = format!("the limit `{limit}` counts by `{key}`, which the request has not");
    explained(head, (status, INVALID_ARGUMENT), BLANK, &detail)
}

/// What to do when a limit counts by addresses, and the server does not tell them.
pub(crate) const NO_PEER: &str = "counts by address, and the server does not tell who the peer is. In axum, serve \
    the app with `.into_make_service_with_connect_info::<SocketAddr>()` and switch on the feature `axum` of \
    tidegate-tower, which is for axum 0.8; elsewhere put `tidegate_tower::Peer` into the extensions of each request, or say \
    `.peer(…)` how to find it. To go without, say `.on_missing(…)`";

/// The server does not tell addresses: a mistake, which whoever set it up must see.
pub(crate) fn without_peer(head: &Head<'_>, limit: &str) -> Response<Bytes> {
    let detail = format!("the limit `{limit}` {NO_PEER}");
    explained(head, (StatusCode::INTERNAL_SERVER_ERROR, INTERNAL), BLANK, &detail)
}

/// There is more to do than can be borne. When to come back is not in it yet.
pub(crate) fn reduced_capacity(head: &Head<'_>, detail: &str) -> Response<Bytes> {
    let kind = format!("{PROBLEM_TYPES}temporary-reduced-capacity");
    explained(head, (StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE), &kind, detail)
}

/// The type of a problem that its status says all about.
const BLANK: &str = "about:blank";

fn explained(
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
    problem_of(status, body)
}

fn problem_of(status: StatusCode, body: Vec<u8>) -> Response<Bytes> {
    // Three more are added to these.
    let mut headers = HeaderMap::with_capacity(6);
    headers.insert(CONTENT_TYPE, PROBLEM_JSON);
    headers.insert(CACHE_CONTROL, NO_STORE);
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// A response that is a status and nothing else.
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

/// What gRPC clients read, in times that people read.
fn text(told: &[LimitStatus<'_>], decision: Decision) -> String {
    let retry = match decision.verdict {
        Verdict::Deny(Retry::After(span)) if span < Span::from_secs(1) => {
            Retry::After(Span::from_millis(millis_ceil(span)))
        }
        Verdict::Deny(Retry::After(span)) => Retry::After(Span::from_secs(span.as_secs_ceil())),
        Verdict::Deny(retry) => retry,
        Verdict::Allow | Verdict::Wait(_) => Retry::OnRelease,
    };
    let names: Vec<&str> = Denial::new(told, decision).limits().collect();
    format!("{} by {}", decision.deny(retry), names.join(", "))
}
