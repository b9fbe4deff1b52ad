//! Which fields a client wants to be told by.

use super::problem::Problem;
use super::query::parameter;
use super::route::Route;
use crate::config::near;
use http::header::HeaderName;
use http::request::Parts;
use tidegate_http::HeaderStyle;

/// What each is called.
const STYLES: [(&str, HeaderStyle); 4] = [
    ("draft-11", HeaderStyle::Draft11),
    ("legacy", HeaderStyle::Legacy),
    ("draft-06", HeaderStyle::Draft06),
    ("next", HeaderStyle::NextAC),
];

/// No name that anybody meant is longer than this.
const NAME_BYTES_MAX: usize = 32;

/// What the request asks for by `?headers=…` or `X-RateLimit-Style: …`. A proxy hands on its client's field, so of
/// what it asks only the parameter is looked at.
pub(super) fn style(request: &Parts, route: Route) -> Result<HeaderStyle, Problem> {
    const STYLE: HeaderName = HeaderName::from_static("x-ratelimit-style");
    let field = request.headers.get(STYLE).filter(|_| route != Route::Authorize);
    let field = field.map(|name| named(name.as_bytes())).transpose()?;
    let asked = parameter(request.uri.query(), "headers").map(|name| named(&name)).transpose()?;
    Ok(asked.or(field).unwrap_or(HeaderStyle::Draft11))
}

fn named(name: &[u8]) -> Result<HeaderStyle, Problem> {
    let known = STYLES.iter().find(|(known, _)| known.as_bytes() == name);
    known.map(|(_, style)| *style).ok_or_else(|| unknown(name))
}

fn unknown(asked: &[u8]) -> Problem {
    let asked = String::from_utf8_lossy(&asked[..asked.len().min(NAME_BYTES_MAX)]);
    let what = "`headers` and `X-RateLimit-Style` name the fields that tell what is left";
    let names = STYLES.map(|(name, _)| name);
    match near(&asked, names.into_iter()) {
        Some(near) => Problem::bad(format!("{what}; did you mean `{near}`?")),
        None => Problem::bad(format!("{what}; there are {}", names.join(", "))),
    }
}
