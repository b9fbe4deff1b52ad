//! The dashboard: a page, its style and its script, as they are in the source.
//!
//! Always   Nothing comes from elsewhere, and nothing is built. Script and style are files of their own, so that
//!          the policy can refuse all that stands in the page: a key that is markup stays text.

use crate::http::{Answered, Page};
use http::header::{
    CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderValue, StatusCode};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Html,
    Css,
    Js,
}

const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

pub(super) fn answer(part: Part) -> Answered {
    let (kind, text) = match part {
        Part::Html => ("text/html; charset=utf-8", include_str!("dashboard.html")),
        Part::Css => ("text/css; charset=utf-8", include_str!("dashboard.css")),
        Part::Js => ("text/javascript; charset=utf-8", include_str!("dashboard.js")),
    };
    let page = Page::new(StatusCode::OK);
    let kind = HeaderValue::from_static(kind);
    let mut answered = page.body(kind, |out| out.extend_from_slice(text.as_bytes()));
    let headers = answered.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    answered
}
