//! The style of rate limit header fields that a client requests.

use super::problem::Problem;
use super::query::parameter;
use super::route::Route;
use crate::config::near;
use http::header::HeaderName;
use http::request::Parts;
use tidegate_http::HeaderStyle;

/// The names of the styles.
const STYLES: [(&str, HeaderStyle); 4] = [
    ("draft-11", HeaderStyle::Draft11),
    ("legacy", HeaderStyle::Legacy),
    ("draft-06", HeaderStyle::Draft06),
    ("next", HeaderStyle::NextAC),
];

/// Maximum length of a name for which a suggestion is searched.
const NAME_BYTES_MAX: usize = 32;

/// Returns the style of `?headers=…` or `X-RateLimit-Style: …`. For `/v1/authorize` the header field is ignored, because a proxy
/// forwards the field of its client.
pub(super) fn style(request: &Parts, route: Route) -> Result<HeaderStyle, Problem> {
    const STYLE: HeaderName = HeaderName::from_static("x-ratelimit-style");
    let field = request.headers.get(STYLE).filter(|_| route != Route::Authorize);
    let field = field.map(|name| named(name.as_bytes())).transpose()?;
    let query = parameter(request.uri.query(), "headers").map(|name| named(&name)).transpose()?;
    Ok(query.or(field).unwrap_or(HeaderStyle::Draft11))
}

fn named(name: &[u8]) -> Result<HeaderStyle, Problem> {
    let known = STYLES.iter().find(|(known, _)| known.as_bytes() == name);
    known.map(|(_, style)| *style).ok_or_else(|| unknown(name))
}

fn unknown(name: &[u8]) -> Problem {
    let name = String::from_utf8_lossy(&name[..name.len().min(NAME_BYTES_MAX)]);
    let what = "`headers` and `X-RateLimit-Style` choose the rate limit header fields";
    let names = STYLES.map(|(name, _)| name);
    match near(&name, names) {
        Some(near) => Problem::bad(format!("{what}; did you mean `{near}`?")),
        None => Problem::bad(format!("{what}; there are {}", names.join(", "))),
    }
}
