//! Renders a decision: status, header fields and members of the body. `tidegate-http` writes the header fields
//! (`rate_limit_fields.rs` there) and the members.
//!
//! Invariant An allowed request gets 200 and plain JSON, a denied one 429 and the same members in a problem of the registered type.
//! Invariant Header fields describe enforced limits only: they reach clients, which must not see limits in shadow mode. The body is
//!           for the caller of this API, and describes all.

use super::response::{JSON, PROBLEM, RawResponse, ResponseBuilder};
use crate::engine::EffectiveDecision;
use http::StatusCode;
use tidegate_http::{ByteWriter as _, HeaderStyle, LimitStatus, put_decision_members, put_denial};

/// Renders the joint decision `all`, with `more` members.
pub(super) fn answer(
    style: HeaderStyle,
    statuses: &[LimitStatus<'_>],
    all: &EffectiveDecision,
    more: impl FnOnce(&mut Vec<u8>),
) -> RawResponse {
    if !all.passes() {
        return deny(StatusCode::TOO_MANY_REQUESTS, style, (statuses, all), more);
    }
    let mut page = ResponseBuilder::new(StatusCode::OK);
    style.write(&mut page, statuses, &all.decision);
    page.body(JSON, |out| {
        out.push(b'{');
        put_decision_members(out, all);
        more(out);
        out.push(b'}');
    })
}

/// Renders a denial with this status.
pub(super) fn deny(
    status: StatusCode,
    style: HeaderStyle,
    (statuses, all): (&[LimitStatus<'_>], &EffectiveDecision),
    more: impl FnOnce(&mut Vec<u8>),
) -> RawResponse {
    let mut page = ResponseBuilder::new(status);
    style.write(&mut page, statuses, &all.decision);
    page.body(PROBLEM, |out| put_denial(out, status, statuses, all, more))
}

/// Appends the decisions of several checks.
pub(super) fn each(out: &mut Vec<u8>, answers: &[EffectiveDecision]) {
    out.extend_from_slice(br#","each":["#);
    for (index, answer) in answers.iter().enumerate() {
        out.extend_from_slice(if index > 0 { b",{" } else { b"{" });
        put_decision_members(out, answer);
        out.push(b'}');
    }
    out.push(b']');
}

/// Appends a member with a number. `name` includes the punctuation.
pub(super) fn member(out: &mut Vec<u8>, name: &str, value: u64) {
    out.extend_from_slice(name.as_bytes());
    out.put_number(value);
}
