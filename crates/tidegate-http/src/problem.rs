//! The body of a denied request: a problem document (RFC 9457) of the registered type, with the decision's numbers as
//! members.
//!
//! Rounding  Waits round up to whole milliseconds.
//! Bound     No number is above [`JSON_INTEGER_MAX`], since many clients parse JSON numbers as doubles. An unknown number is
//!           `null`.

use crate::{ByteWriter, EffectiveDecision, LimitStatus};
use http::{HeaderValue, StatusCode};
use tidegate::{Retry, Span, Verdict};

/// The IANA registry of problem types; a type's name follows the `#`.
pub const PROBLEM_TYPES: &str = "https://iana.org/assignments/http-problem-types#";

/// The largest integer that every JSON parser represents exactly.
pub const JSON_INTEGER_MAX: u64 = (1 << 53) - 1;

/// The `Content-Type` of a problem document.
pub const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
/// The `Cache-Control` of a denial. A denial is true only at the time of the request (RFC 6585 says so of 429).
pub const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Appends the problem body of a denial by these limits, whose joint decision is `joint`. `more` may append members.
///
/// ```
/// use http::StatusCode;
/// use tidegate_http::{EffectiveDecision, LimitStatus, put_denial};
/// # use tidegate::{Gate, ManualClock, Rule};
///
/// let rule: Rule = "1/s".parse()?;
/// let gate = Gate::with_clock(rule.clone(), ManualClock::new());
/// let _ = gate.check();
/// let decision = gate.check();
/// let limits = [LimitStatus { name: "api", rule: &rule, decision }];
///
/// let mut body = Vec::new();
/// let joint = EffectiveDecision::enforced(decision);
/// put_denial(&mut body, StatusCode::TOO_MANY_REQUESTS, &limits, &joint, |_| ());
/// assert!(String::from_utf8(body).unwrap().contains(r#""violated-policies":["api"]"#));
/// # Ok::<(), tidegate::RuleError>(())
/// ```
pub fn put_denial<O: ByteWriter>(
    out: &mut O,
    status: StatusCode,
    limits: &[LimitStatus<'_>],
    joint: &EffectiveDecision,
    more: impl FnOnce(&mut O),
) {
    out.put(
        b"{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\"title\":\"Request cannot be \
          satisfied as assigned quota has been exceeded\",\"status\":",
    );
    out.put(status.as_str().as_bytes());
    out.put(br#","violated-policies":["#);
    for (index, limit) in limits.iter().filter(|limit| limit.decision.is_deny()).enumerate() {
        if index > 0 {
            out.put(b",");
        }
        out.put_json(limit.name);
    }
    out.put(b"],");
    put_decision_members(out, joint);
    more(out);
    out.put(b"}");
}

/// Appends the JSON members of a decision, without braces.
pub fn put_decision_members(out: &mut impl ByteWriter, effective: &EffectiveDecision) {
    let decision = &effective.decision;
    out.put(if effective.passes() { br#""allow":true"#.as_slice() } else { br#""allow":false"# });
    put_nullable(out, "limit", decision.known_limit());
    put_nullable(out, "remaining", decision.known_remaining());
    put_nullable(out, "retry_after_ms", decision.retry_after().map(millis_ceil));
    put_nullable(out, "reset_after_ms", decision.known_reset_after().map(millis_ceil));
    match decision.verdict {
        Verdict::Wait(span) => put_nullable(out, "wait_ms", Some(millis_ceil(span))),
        Verdict::Deny(Retry::Never) => out.put(br#","never":true"#),
        Verdict::Deny(Retry::OnRelease) => out.put(br#","on_release":true"#),
        Verdict::Allow | Verdict::Deny(Retry::After(_)) => {}
    }
    if effective.is_shadowed {
        out.put(br#","shadowed":true"#);
    }
}

fn put_nullable(out: &mut impl ByteWriter, name: &str, value: Option<u64>) {
    out.put(b",\"");
    out.put(name.as_bytes());
    out.put(b"\":");
    match value {
        Some(value) => out.put_number(value.min(JSON_INTEGER_MAX)),
        None => out.put(b"null"),
    }
}

/// Returns a span in whole milliseconds, rounded up, at most [`JSON_INTEGER_MAX`].
pub const fn millis_ceil(span: Span) -> u64 {
    let ms = span.as_micros().div_ceil(1_000);
    if ms < JSON_INTEGER_MAX { ms } else { JSON_INTEGER_MAX }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HeaderStyle;
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

    /// Returns every number in this text.
    fn numbers(text: &str) -> impl Iterator<Item = u128> {
        let runs = text.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty());
        runs.map(|run| run.parse().expect("it fits into 128 bits"))
    }

    proptest! {
        #[test]
        fn no_body_has_a_number_above_the_json_maximum(
            decision in decision(), is_shadowed: bool,
        ) {
            let effective = EffectiveDecision { decision, is_shadowed };
            let mut body = Vec::new();
            put_decision_members(&mut body, &effective);
            put_denial(&mut body, StatusCode::TOO_MANY_REQUESTS, &[], &effective, |_| ());
            let body = String::from_utf8(body).expect("it is UTF-8");
            prop_assert!(numbers(&body).all(|number| number < 1 << 53), "{}", body);
            let is_unknown = body.contains(r#""remaining":null"#);
            prop_assert_eq!(is_unknown, decision.remaining == u64::MAX, "{}", body);
        }

        #[test]
        fn no_field_has_an_unknown_number(decision in decision(), has_window: bool) {
            let rule: Rule = if has_window { "7/1500ms" } else { "concurrency 7" }.parse().unwrap();
            let limits = [LimitStatus { name: "api", rule: &rule, decision }];
            for style in
                [HeaderStyle::Draft11, HeaderStyle::NextAC, HeaderStyle::Draft06, HeaderStyle::Legacy]
            {
                let mut headers = HeaderMap::new();
                style.write(&mut headers, &limits, &decision);
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
    fn a_concurrency_limit_reports_no_reset_time() {
        let gate = tidegate::Gate::new("concurrency 2".parse().unwrap());
        let permit = gate.try_acquire().unwrap();
        let mut body = Vec::new();
        put_decision_members(&mut body, &EffectiveDecision::enforced(permit.decision()));
        assert!(body.ends_with(br#""remaining":1,"retry_after_ms":null,"reset_after_ms":null"#));
    }

    #[test]
    fn times_are_rounded_up() {
        assert_eq!(millis_ceil(Span::from_micros(1_001)), 2);
        let denied = Decision::without_state(Verdict::Deny(Retry::After(Span::from_millis(1))));
        assert_eq!(crate::retry_after_secs(&denied), Some(1));
    }
}
