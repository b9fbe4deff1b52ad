//! A decision as an answer: status, fields and members.
//!
//! Always   An allowed request has 200 and plain JSON, a denied one 429 and the same members in a problem of the
//!          registered type.
//! Always   Fields tell of limits that are obeyed: they reach clients, who are not to see what is in the shadow. The
//!          body is for who asks, and has it.

use super::page::{Answered, JSON, PROBLEM, Page};
use crate::engine::Answer;
use http::StatusCode;
use tidegate_http::{ByteWriter as _, HeaderStyle, LimitStatus, put_decision_members, put_denial};

/// What is said to a caller: what `all` decided together, and `more` members besides.
pub(super) fn answer(
    style: HeaderStyle,
    told: &[LimitStatus<'_>],
    all: &Answer,
    more: impl FnOnce(&mut Vec<u8>),
) -> Answered {
    if !all.passes() {
        return deny(StatusCode::TOO_MANY_REQUESTS, style, (told, all), more);
    }
    let mut page = Page::new(StatusCode::OK);
    style.write(&mut page, told, &all.decision);
    page.body(JSON, |out| {
        out.push(b'{');
        put_decision_members(out, all);
        more(out);
        out.push(b'}');
    })
}

/// A denial, under whichever status.
pub(super) fn deny(
    status: StatusCode,
    style: HeaderStyle,
    (told, all): (&[LimitStatus<'_>], &Answer),
    more: impl FnOnce(&mut Vec<u8>),
) -> Answered {
    let mut page = Page::new(status);
    style.write(&mut page, told, &all.decision);
    page.body(PROBLEM, |out| put_denial(out, status, told, all, more))
}

/// Appends what each of several questions was told.
pub(super) fn each(out: &mut Vec<u8>, answers: &[Answer]) {
    out.extend_from_slice(br#","each":["#);
    for (place, answer) in answers.iter().enumerate() {
        out.extend_from_slice(if place > 0 { b",{" } else { b"{" });
        put_decision_members(out, answer);
        out.push(b'}');
    }
    out.push(b']');
}

pub(super) fn member(out: &mut Vec<u8>, name: &str, value: u64) {
    out.extend_from_slice(name.as_bytes());
    out.put_number(value);
}
