//! The dashboard: a page, its style and its script, as they are in the source.
//!
//! Always   Nothing comes from elsewhere, and nothing is built. Script and style are files of their own, so that
//!          the policy can refuse all that stands in the page: a key that is markup stays text.

use crate::protocol::http::{Answered, Page};
use http::header::{
    CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderValue, StatusCode};
use tidegate_http::FieldWriter as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Html,
    Css,
    Js,
}

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn answer(part: Part) -> Answered {
    let (kind, text) = match part {
        Part::Html => ("text/html; charset=utf-8", include_str!("dashboard.html")),
        Part::Css => ("text/css; charset=utf-8", include_str!("dashboard.css")),
        Part::Js => ("text/javascript; charset=utf-8", include_str!("dashboard.js")),
    };
    let mut page = Page::new(StatusCode::OK);
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
    ] {
        page.field(name, |out| out.extend_from_slice(value.as_bytes()));
    }
    let kind = HeaderValue::from_static(kind);
    page.body(kind, |out| out.extend_from_slice(text.as_bytes()))
}
