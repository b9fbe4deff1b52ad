//! What Envoy is told: a status for each descriptor, headers for the client, a body where there is one.
//!
//! Rounding Times are whole seconds, rounded up: Envoy drops what is less than a second, and a client that comes
//!          back when it is told to must not be early.
//! Always   A client never sees a limit that is in the shadow; Envoy does, in the status and the metadata.

use super::book::Counted;
use super::proto::{Code, DescriptorStatus, HeaderValue, RateLimitResponse};
use crate::config::Fallback;
use crate::engine::Answer;
use prost_types::value::Kind;
use std::cmp::Reverse;
use tidegate::{Decision, Retry, Span, Verdict};
use tidegate_http::{FIELD_INTEGER_MAX, reset_after};

/// Draft 06 of the `RateLimit` fields, which is what the reference server sends.
const LIMIT: &str = "RateLimit-Limit";
const REMAINING: &str = "RateLimit-Remaining";
const RESET: &str = "RateLimit-Reset";
const RETRY_AFTER: &str = "Retry-After";
const CONTENT_TYPE: &str = "Content-Type";

/// In the metadata: the limit that denied the request, and the one that would have.
const DENIED_BY: &str = "denied_by";
const SHADOWED_BY: &str = "shadowed_by";

/// The answer to a request, from those to its descriptors.
pub(super) fn response<'a>(
    answered: impl Iterator<Item = (&'a Counted<'a>, &'a Answer)> + Clone,
) -> RateLimitResponse {
    let statuses = answered.clone().map(|(counted, answer)| status(counted, answer)).collect();
    let mut response = RateLimitResponse {
        overall_code: Code::Ok.into(),
        statuses,
        response_headers_to_add: fields(answered.clone()),
        ..RateLimitResponse::default()
    };
    let denied = answered.clone().find(|(_, answer)| !answer.passes());
    if let Some((counted, _)) = denied {
        response.overall_code = Code::OverLimit.into();
        response.dynamic_metadata = Some(metadata(DENIED_BY, counted));
        deny(&mut response, answered);
    } else if let Some((counted, _)) = answered.clone().find(|(_, answer)| answer.is_shadowed) {
        response.dynamic_metadata = Some(metadata(SHADOWED_BY, counted));
    }
    response
}

fn status(counted: &Counted<'_>, answer: &Answer) -> DescriptorStatus {
    let code = if answer.passes() { Code::Ok } else { Code::OverLimit };
    let status = DescriptorStatus { code: code.into(), ..DescriptorStatus::default() };
    match counted {
        Counted::Free => status,
        counted => match answer.decision.known_remaining() {
            // Envoy reads what remains only of a status that has a limit. One that is off, or whose store does not answer,
            // has neither; protobuf has no other word for a number that nobody knows.
            None => status,
            Some(remaining) => DescriptorStatus {
                current_limit: counted.told().cloned(),
                limit_remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
                duration_until_reset: until_reset(answer),
                ..status
            },
        },
    }
}

/// Envoy tells clients 0 where there is none, so a denial without one tells when to come back.
fn until_reset(answer: &Answer) -> Option<prost_types::Duration> {
    let seconds = until_reset_s(&answer.decision)?.try_into().unwrap_or(i64::MAX);
    Some(prost_types::Duration { seconds, nanos: 0 })
}

/// Absent where nobody knows, and where it is never: a rule that admits nothing has no reset (decision 0035).
fn until_reset_s(decision: &Decision) -> Option<u64> {
    reset_after(decision).or(decision.retry_after()).map(Span::as_secs_ceil)
}

/// The tightest limit, as the client sees it: one that denied it, or else the one with the least remaining.
fn fields<'a>(answered: impl Iterator<Item = (&'a Counted<'a>, &'a Answer)>) -> Vec<HeaderValue> {
    let is_seen = |counted: &Counted<'_>| match counted {
        Counted::Free => false,
        Counted::Shut(_) => true,
        Counted::By { limit, .. } => limit.mode().is_visible(),
    };
    let tightness = |answer: &Answer| {
        (answer.passes(), answer.decision.remaining, Reverse(answer.decision.reset_after))
    };
    let seen = answered.filter(|(counted, _)| is_seen(counted)).map(|(_, answer)| answer);
    let seen = seen.filter(|answer| answer.decision.known_remaining().is_some());
    let Some(tightest) = seen.min_by_key(|answer| tightness(answer)) else { return Vec::new() };
    let decision = &tightest.decision;
    // There is room for what a denial adds.
    let mut fields = Vec::with_capacity(5);
    let numbers = [
        (LIMIT, decision.known_limit().map(in_field)),
        (REMAINING, decision.known_remaining().map(in_field)),
        (RESET, until_reset_s(decision)),
    ];
    let known = numbers.into_iter().filter_map(|(name, value)| Some(number(name, value?)));
    fields.extend(known);
    fields
}

fn deny<'a>(
    response: &mut RateLimitResponse,
    answered: impl Iterator<Item = (&'a Counted<'a>, &'a Answer)> + Clone,
) {
    let retries = answered.clone().filter_map(|(_, answer)| match answer.decision.verdict {
        Verdict::Deny(retry) => Some(retry_after(retry)),
        _ => None,
    });
    // If one of them never admits it, no wait helps.
    let longest = retries.reduce(|longest, other| Some(longest?.max(other?))).flatten();
    let fields = &mut response.response_headers_to_add;
    fields.extend(longest.map(|wait| number(RETRY_AFTER, wait.as_secs_ceil().max(1))));
    let fallback = answered.filter(|(_, answer)| !answer.passes()).find_map(|(counted, _)| {
        let limit = counted.limit()?;
        limit.config().fallback.as_ref()
    });
    if let Some(Fallback { content_type, body, .. }) = fallback {
        fields.push(field(CONTENT_TYPE, content_type.clone()));
        response.raw_body = body.clone().into();
    }
}

fn retry_after(retry: Retry) -> Option<Span> {
    match retry {
        Retry::After(wait) => Some(wait),
        // Nobody knows; soon is as good a guess as any.
        Retry::OnRelease => Some(Span::from_secs(1)),
        Retry::Never => None,
    }
}

/// A number as a field tells it, over HTTP too.
fn in_field(number: u64) -> u64 {
    number.min(FIELD_INTEGER_MAX)
}

fn number(name: &str, number: u64) -> HeaderValue {
    field(name, itoa::Buffer::new().format(number).to_owned())
}

fn field(name: &str, value: String) -> HeaderValue {
    HeaderValue { key: name.to_owned(), value, raw_value: Vec::new() }
}

fn metadata(what: &str, counted: &Counted<'_>) -> prost_types::Struct {
    let limit = counted.limit().map(|limit| limit.name().to_owned()).unwrap_or_default();
    let value = prost_types::Value { kind: Some(Kind::StringValue(limit)) };
    prost_types::Struct { fields: [(what.to_owned(), value)].into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::grpc::proto::RateLimit;

    fn told(decision: Decision) -> (DescriptorStatus, Vec<String>) {
        let limit = RateLimit { requests_per_unit: 7, ..RateLimit::default() };
        let (counted, answer) = (Counted::Shut(limit), Answer::enforced(decision));
        let mut response = response([(&counted, &answer)].into_iter());
        let fields = response.response_headers_to_add.iter();
        let fields = fields.map(|field| format!("{}: {}", field.key, field.value)).collect();
        (response.statuses.remove(0), fields)
    }

    /// Envoy makes headers of its own of a status that has a limit.
    #[test]
    fn envoy_is_told_no_quota_that_the_store_has_not_confirmed() {
        let (status, fields) = told(Decision::without_state(Verdict::Allow));
        assert_eq!((status.current_limit, status.duration_until_reset), (None, None));
        assert_eq!(status.limit_remaining, 0, "nobody knows how many remain");
        assert!(fields.is_empty(), "{fields:?}");
        let wait = Span::from_secs(2);
        let denied = Decision::without_state(Verdict::Deny(Retry::After(wait)));
        let (status, fields) = told(denied);
        assert_eq!(status.current_limit.map(|limit| limit.requests_per_unit), Some(7));
        assert_eq!(status.limit_remaining, 0);
        assert_eq!(status.duration_until_reset.map(|reset| reset.seconds), Some(2));
        assert_eq!(fields, ["RateLimit-Remaining: 0", "RateLimit-Reset: 2", "Retry-After: 2"]);
    }

    /// A client that is told a reset comes back then, and a rule of 0 never admits it.
    #[test]
    fn a_rule_that_admits_nothing_has_no_reset() {
        let gate = tidegate::Gate::new("0/s".parse().expect("it is a rule"));
        for decision in [gate.check(), gate.check_n(0)] {
            let (status, fields) = told(decision);
            assert_eq!(status.duration_until_reset, None);
            assert_eq!(fields, ["RateLimit-Limit: 0", "RateLimit-Remaining: 0"]);
        }
    }

    /// A structured field has no larger integers (RFC 9651).
    #[test]
    fn no_field_has_a_number_that_a_field_cannot_have() {
        let mut decision = Decision::UNLIMITED;
        (decision.limit, decision.remaining) = (1 << 53, 1 << 53);
        let (_, fields) = told(decision);
        let most = |name| format!("RateLimit-{name}: 999999999999999");
        assert_eq!(fields[..2], ["Limit", "Remaining"].map(most));
    }
}
