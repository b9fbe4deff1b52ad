//! A decision as an answer: status, fields and members.
//!
//! Always   An allowed request has 200 and plain JSON, a denied one 429 and the same members in a problem of the
//!          registered type. Waits are rounded up to whole milliseconds.

use super::fields::HeaderStyle;
use super::page::{Answered, JSON, PROBLEM, Page, number, quoted};
use super::policy::Told;
use super::problem::TYPES;
use crate::engine::Answer;
use http::StatusCode;
use tidegate::{Retry, Span, Verdict};

/// What is said to a caller: what `all` decided together, and `more` members besides.
pub(super) fn answer(
    style: HeaderStyle,
    told: &[Told<'_>],
    all: &Answer,
    more: impl FnOnce(&mut Vec<u8>),
) -> Answered {
    if !all.passes() {
        return deny(StatusCode::TOO_MANY_REQUESTS, style, (told, all), more);
    }
    let mut page = Page::new(StatusCode::OK);
    style.write(&mut page, told, all);
    page.body(JSON, |out| {
        out.push(b'{');
        members(out, all);
        more(out);
        out.push(b'}');
    })
}

/// A denial, under whichever status.
pub(super) fn deny(
    status: StatusCode,
    style: HeaderStyle,
    (told, all): (&[Told<'_>], &Answer),
    more: impl FnOnce(&mut Vec<u8>),
) -> Answered {
    let mut page = Page::new(status);
    style.write(&mut page, told, all);
    page.body(PROBLEM, |out| {
        out.extend_from_slice(br#"{"type":""#);
        out.extend_from_slice(TYPES.as_bytes());
        out.extend_from_slice(
            br#"quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":"#,
        );
        number(out, status.as_u16().into());
        out.extend_from_slice(br#","violated-policies":["#);
        let denying = told.iter().filter(|told| !told.answer.passes());
        for (place, told) in denying.enumerate() {
            if place > 0 {
                out.push(b',');
            }
            quoted(out, told.limit.name());
        }
        out.extend_from_slice(b"],");
        members(out, all);
        more(out);
        out.push(b'}');
    })
}

/// Appends what each of several questions was told.
pub(super) fn each(out: &mut Vec<u8>, told: &[Told<'_>]) {
    out.extend_from_slice(br#","each":["#);
    for (place, told) in told.iter().enumerate() {
        out.extend_from_slice(if place > 0 { b",{" } else { b"{" });
        members(out, &told.answer);
        out.push(b'}');
    }
    out.push(b']');
}

/// Appends the members that every decision has, and those that this one has.
fn members(out: &mut Vec<u8>, answer: &Answer) {
    let decision = &answer.decision;
    out.extend_from_slice(if answer.passes() { br#""allow":true"# } else { br#""allow":false"# });
    member(out, r#","limit":"#, decision.limit);
    member(out, r#","remaining":"#, decision.remaining);
    match decision.retry_after() {
        Some(span) => member(out, r#","retry_after_ms":"#, as_ms_ceil(span)),
        None => out.extend_from_slice(br#","retry_after_ms":null"#),
    }
    member(out, r#","reset_after_ms":"#, as_ms_ceil(decision.reset_after));
    match decision.verdict {
        Verdict::Wait(span) => member(out, r#","wait_ms":"#, as_ms_ceil(span)),
        Verdict::Deny(Retry::Never) => out.extend_from_slice(br#","never":true"#),
        Verdict::Deny(Retry::OnRelease) => out.extend_from_slice(br#","on_release":true"#),
        Verdict::Allow | Verdict::Deny(Retry::After(_)) => {}
    }
    if answer.is_shadowed {
        out.extend_from_slice(br#","shadowed":true"#);
    }
}

pub(super) fn member(out: &mut Vec<u8>, name: &str, value: u64) {
    out.extend_from_slice(name.as_bytes());
    number(out, value);
}

pub(super) fn as_ms_ceil(span: Span) -> u64 {
    span.as_micros().div_ceil(1_000)
}
