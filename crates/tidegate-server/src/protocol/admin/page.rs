//! The dashboard: a page, its style sheet and its script, served as they are in the source.
//!
//! Invariant The page loads nothing from other hosts. The content security policy forbids inline scripts and styles, so a key that
//!           contains markup stays text.

use crate::protocol::http::{RawResponse, ResponseBuilder};
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

pub(super) fn answer(part: Part) -> RawResponse {
    let (content_type, text) = match part {
        Part::Html => ("text/html; charset=utf-8", include_str!("dashboard.html")),
        Part::Css => ("text/css; charset=utf-8", include_str!("dashboard.css")),
        Part::Js => ("text/javascript; charset=utf-8", include_str!("dashboard.js")),
    };
    let mut page = ResponseBuilder::new(StatusCode::OK);
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
    ] {
        page.field(name, |out| out.extend_from_slice(value.as_bytes()));
    }
    let content_type = HeaderValue::from_static(content_type);
    page.body(content_type, |out| out.extend_from_slice(text.as_bytes()))
}
