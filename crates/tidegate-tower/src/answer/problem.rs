//! The body of a refusal: a problem (RFC 9457) of the registered type, with the decision's numbers as members.
//!
//! Rounding Waits are rounded up to whole milliseconds.
//! Bound    No number is above [`JSON_INTEGER_MAX`]: clients read JSON in doubles. One that nobody knows is `null`.

use super::{Answer, Told};
use crate::short::Out;
use http::{HeaderValue, StatusCode};
use tidegate::{Retry, Span, Verdict};

/// Where the types of problems are registered that have to do with limits.
pub const PROBLEM_TYPES: &str = "https://iana.org/assignments/http-problem-types#";

/// The largest integer that every reader of JSON holds exactly.
pub const JSON_INTEGER_MAX: u64 = (1 << 53) - 1;

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
    put_known(out, "", decision.known_limit());
    put_known(out, r#","remaining":"#, decision.known_remaining());
    put_known(out, r#","retry_after_ms":"#, decision.retry_after().map(as_ms_ceil));
    put_known(out, r#","reset_after_ms":"#, decision.known_reset_after().map(as_ms_ceil));
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
    out.put_number(value.min(JSON_INTEGER_MAX));
}

fn put_known(out: &mut impl Out, name: &str, value: Option<u64>) {
    let Some(value) = value else {
        out.put(name.as_bytes());
        return out.put(b"null");
    };
    put_member(out, name, value);
}

/// A wait as a body says it: in whole milliseconds, rounded up, and no more than a reader of JSON can hold.
///
/// ```
/// use tidegate::Span;
///
/// assert_eq!(tidegate_tower::as_ms_ceil(Span::from_micros(1_001)), 2);
/// ```
pub const fn as_ms_ceil(span: Span) -> u64 {
    let ms = span.as_micros().div_ceil(1_000);
    if ms < JSON_INTEGER_MAX { ms } else { JSON_INTEGER_MAX }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::HeaderStyle;
    use http::HeaderMap;
    use proptest::prelude::*;
    use tidegate::{Decision, Rule};

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![0..10_u64, any::<u64>(), Just(1 << 53), Just(u64::MAX - 1), Just(u64::MAX)]
    }

    fn verdict() -> impl Strategy<Value = Verdict> {
        let span = || number().prop_map(Span::from_micros);
        prop_oneof![
            Just(Verdict::Allow),
            span().prop_map(Verdict::Wait),
            span().prop_map(|span| Verdict::Deny(Retry::After(span))),
            Just(Verdict::Deny(Retry::OnRelease)),
            Just(Verdict::Deny(Retry::Never)),
        ]
    }

    fn decision() -> impl Strategy<Value = Decision> {
        (verdict(), [number(), number(), number()]).prop_map(|(verdict, numbers)| {
            let mut decision = Decision::without_state(verdict);
            [decision.limit, decision.remaining] = [numbers[0], numbers[1]];
            decision.reset_after = Span::from_micros(numbers[2]);
            decision
        })
    }

    /// Every number that stands in this text.
    fn numbers(text: &str) -> impl Iterator<Item = u128> {
        let runs = text.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty());
        runs.map(|run| run.parse().expect("it is not that long"))
    }

    proptest! {
        #[test]
        fn no_body_has_a_number_that_readers_of_json_cannot_hold(
            decision in decision(), is_shadowed: bool,
        ) {
            let answer = Answer { decision, is_shadowed };
            let mut body = Vec::new();
            put_members(&mut body, &answer);
            put_denial(&mut body, StatusCode::TOO_MANY_REQUESTS, &[], &answer, |_| ());
            let body = String::from_utf8(body).expect("it is text");
            prop_assert!(numbers(&body).all(|number| number < 1 << 53), "{}", body);
            let is_unknown = body.contains(r#""remaining":null"#);
            prop_assert_eq!(is_unknown, decision.remaining == u64::MAX, "{}", body);
        }

        #[test]
        fn no_field_has_a_number_that_nobody_knows(decision in decision(), is_shared: bool) {
            let rule: Rule = if is_shared { "7/1500ms" } else { "concurrency 7" }.parse().unwrap();
            let answer = Answer::obeyed(decision);
            let told = [Told { name: "api", rule: &rule, answer }];
            for style in
                [HeaderStyle::Draft11, HeaderStyle::NextAC, HeaderStyle::Draft06, HeaderStyle::Legacy]
            {
                let mut headers = HeaderMap::new();
                style.write(&mut headers, &told, &answer);
                headers.remove(http::header::RETRY_AFTER);
                prop_assert_eq!(headers.is_empty(), decision.remaining == u64::MAX);
                for (name, value) in &headers {
                    let value = value.to_str().unwrap();
                    prop_assert!(numbers(value).all(|n| n < 1 << 50), "{}: {}", name, value);
                }
            }
        }
    }

    #[test]
    fn only_a_release_can_tell_when_a_place_is_as_good_as_new() {
        let gate = tidegate::Gate::new("concurrency 2".parse().unwrap());
        let permit = gate.try_acquire().unwrap();
        let mut body = Vec::new();
        put_members(&mut body, &Answer::obeyed(permit.decision()));
        assert!(body.ends_with(br#""remaining":1,"retry_after_ms":null,"reset_after_ms":null"#));
    }
}
