//! Which fields a client wants to be told by.

use http::header::HeaderName;
use http::request::Parts;
use tidegate_tower::HeaderStyle;

/// What the request asks for by `X-RateLimit-Style: …` or `?headers=…`.
pub(crate) fn style(request: &Parts) -> HeaderStyle {
    const STYLE: HeaderName = HeaderName::from_static("x-ratelimit-style");
    let asked = match request.uri.query() {
        None => None,
        Some(query) => {
            query.split('&').find_map(|pair| pair.strip_prefix("headers=")).map(str::as_bytes)
        }
    };
    match asked.or_else(|| request.headers.get(STYLE).map(http::HeaderValue::as_bytes)) {
        Some(b"legacy") => HeaderStyle::Legacy,
        Some(b"draft-06") => HeaderStyle::Draft06,
        Some(b"next") => HeaderStyle::NextAC,
        _ => HeaderStyle::Draft11,
    }
}
