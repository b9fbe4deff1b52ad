//! The body of a refusal: a problem (RFC 9457) of the registered type, with the decision's numbers as members.
//!
//! Rounding Waits are rounded up to whole milliseconds.

use super::{Answer, Told};
use crate::short::Out;
use http::{HeaderValue, StatusCode};
use tidegate::{Retry, Span, Verdict};

/// Where the types of problems are registered that have to do with limits.
pub const PROBLEM_TYPES: &str = "https://iana.org/assignments/http-problem-types#";

/// What kind of content a problem is.
pub(crate) const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
/// What is refused may not be cached.
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Appends the body of a denial: what each limit `told`, and what `all` of them said together. `more` members may
/// follow.
///
/// ```
/// use http::StatusCode;
/// use tidegate_tower::{Answer, Told, put_denial};
/// # use tidegate::{Gate, ManualClock, Rule};
///
/// let rule: Rule = "1/s".parse()?;
/// let gate = Gate::with_clock(rule.clone(), ManualClock::new());
/// gate.check();
/// let answer = Answer::obeyed(gate.check());
/// let told = [Told { name: "api", rule: &rule, answer }];
///
/// let mut body = Vec::new();
/// put_denial(&mut body, StatusCode::TOO_MANY_REQUESTS, &told, &answer, |_| ());
/// assert!(String::from_utf8(body).unwrap().contains(r#""violated-policies":["api"]"#));
/// # Ok::<(), tidegate::RuleError>(())
/// ```
pub fn put_denial<O: Out>(
    out: &mut O,
    status: StatusCode,
    told: &[Told<'_>],
    all: &Answer,
    more: impl FnOnce(&mut O),
) {
    put_start(out, status);
    put_violated(out, told.iter().filter(|told| !told.answer.passes()).map(|told| told.name));
    put_members(out, all);
    more(out);
    out.put(b"}");
}

/// What every denial begins with.
pub(super) fn put_start(out: &mut impl Out, status: StatusCode) {
    // One piece, because it is the same in all of them.
    out.put(
        b"{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\"title\":\"Request cannot be \
          satisfied as assigned quota has been exceeded\",\"status\":",
    );
    out.put(status.as_str().as_bytes());
}

/// Who denies.
pub(super) fn put_violated<'a>(out: &mut impl Out, names: impl Iterator<Item = &'a str>) {
    out.put(br#","violated-policies":["#);
    for (place, name) in names.enumerate() {
        if place > 0 {
            out.put(b",");
        }
        out.put_json(name);
    }
    out.put(b"],");
}

/// Appends the members that every decision has, and those that this one has.
///
/// ```
/// use tidegate_tower::{Answer, put_members};
/// # use tidegate::{Gate, ManualClock};
/// let gate = Gate::with_clock("2/s".parse()?, ManualClock::new());
/// let mut body = Vec::new();
/// put_members(&mut body, &Answer::obeyed(gate.check()));
/// let said = r#""allow":true,"limit":2,"remaining":1,"retry_after_ms":null,"reset_after_ms":500"#;
/// assert_eq!(String::from_utf8(body).unwrap(), said);
/// # Ok::<(), tidegate::RuleError>(())
/// ```
pub fn put_members(out: &mut impl Out, answer: &Answer) {
    put_allow(out, answer.passes());
    put_numbers(out, answer);
}

pub(super) fn put_allow(out: &mut impl Out, passes: bool) {
    out.put(if passes {
        br#""allow":true,"limit":"#.as_slice()
    } else {
        br#""allow":false,"limit":"#
    });
}

/// What follows [`put_allow`].
pub(super) fn put_numbers(out: &mut impl Out, answer: &Answer) {
    let decision = &answer.decision;
    out.put_number(decision.limit);
    put_member(out, r#","remaining":"#, decision.remaining);
    match decision.retry_after() {
        Some(span) => put_member(out, r#","retry_after_ms":"#, as_ms_ceil(span)),
        None => out.put(br#","retry_after_ms":null"#),
    }
    put_member(out, r#","reset_after_ms":"#, as_ms_ceil(decision.reset_after));
    match decision.verdict {
        Verdict::Wait(span) => put_member(out, r#","wait_ms":"#, as_ms_ceil(span)),
        Verdict::Deny(Retry::Never) => out.put(br#","never":true"#),
        Verdict::Deny(Retry::OnRelease) => out.put(br#","on_release":true"#),
        Verdict::Allow | Verdict::Deny(Retry::After(_)) => {}
    }
    if answer.is_shadowed {
        out.put(br#","shadowed":true"#);
    }
}

fn put_member(out: &mut impl Out, name: &str, value: u64) {
    out.put(name.as_bytes());
    out.put_number(value);
}

/// A wait as a body says it: in whole milliseconds, rounded up.
///
/// ```
/// use tidegate::Span;
///
/// assert_eq!(tidegate_tower::as_ms_ceil(Span::from_micros(1_001)), 2);
/// ```
pub const fn as_ms_ceil(span: Span) -> u64 {
    span.as_micros().div_ceil(1_000)
}
