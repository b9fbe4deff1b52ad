//! Renders the response to Envoy: a status for each descriptor, header fields for the client, and a body if the limit has a fallback.
//!
//! Rounding  Times are whole seconds, rounded up: Envoy drops fractions of a second, and a client that waits this long must not be
//!           too early.
//! Invariant A client never sees a limit in shadow mode. Envoy does, in the status and the metadata.

use super::limit_lookup::DescriptorLimit;
use super::proto::{Code, DescriptorStatus, HeaderValue, RateLimitResponse};
use crate::config::Fallback;
use crate::engine::EffectiveDecision;
use prost_types::value::Kind;
use std::cmp::Reverse;
use tidegate::{Decision, Retry, Span, Verdict};
use tidegate_http::{FIELD_INTEGER_MAX, reset_after};

/// The fields of draft 06, which the reference server sends. `tidegate-http` writes those of other listeners.
const LIMIT: &str = "RateLimit-Limit";
const REMAINING: &str = "RateLimit-Remaining";
const RESET: &str = "RateLimit-Reset";
const RETRY_AFTER: &str = "Retry-After";
const CONTENT_TYPE: &str = "Content-Type";

/// In the metadata: the limit that denied the request, or the limit in shadow mode that would have.
const DENIED_BY: &str = "denied_by";
const SHADOWED_BY: &str = "shadowed_by";

/// Returns the response to a request with these limits and answers of its descriptors.
pub(super) fn response<'a>(
    answered: impl Iterator<Item = (&'a DescriptorLimit<'a>, &'a EffectiveDecision)> + Clone,
) -> RateLimitResponse {
    let statuses = answered.clone().map(|(limit, answer)| status(limit, answer)).collect();
    let mut response = RateLimitResponse {
        overall_code: Code::Ok.into(),
        statuses,
        response_headers_to_add: fields(answered.clone()),
        ..RateLimitResponse::default()
    };
    let denied = answered.clone().find(|(_, answer)| !answer.passes());
    if let Some((limit, _)) = denied {
        response.overall_code = Code::OverLimit.into();
        response.dynamic_metadata = Some(metadata(DENIED_BY, limit));
        deny(&mut response, answered);
    } else if let Some((limit, _)) = answered.clone().find(|(_, answer)| answer.is_shadowed) {
        response.dynamic_metadata = Some(metadata(SHADOWED_BY, limit));
    }
    response
}

fn status(limit: &DescriptorLimit<'_>, answer: &EffectiveDecision) -> DescriptorStatus {
    let code = if answer.passes() { Code::Ok } else { Code::OverLimit };
    let status = DescriptorStatus { code: code.into(), ..DescriptorStatus::default() };
    match limit {
        DescriptorLimit::Unlimited => status,
        limit => match answer.decision.known_remaining() {
            // Envoy reads the remaining number only from a status with a limit. It is not known for a limit that is off, or whose
            // store does not answer, and protobuf cannot express an unknown number.
            None => status,
            Some(remaining) => DescriptorStatus {
                current_limit: limit.description().cloned(),
                limit_remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
                duration_until_reset: until_reset(answer),
                ..status
            },
        },
    }
}

/// Returns the time until the reset; for a denial without one, the time until a retry, because Envoy sends 0 to clients if it is
/// missing.
fn until_reset(answer: &EffectiveDecision) -> Option<prost_types::Duration> {
    let seconds = until_reset_s(&answer.decision)?.try_into().unwrap_or(i64::MAX);
    Some(prost_types::Duration { seconds, nanos: 0 })
}

/// Returns `None` if the time is not known or infinite: a rule that admits nothing has no reset (decision 0035).
fn until_reset_s(decision: &Decision) -> Option<u64> {
    reset_after(decision).or(decision.retry_after()).map(Span::as_secs_ceil)
}

/// Returns the fields of the tightest limit that the client may see: one that denied it, or else the one with the least remaining.
fn fields<'a>(
    answered: impl Iterator<Item = (&'a DescriptorLimit<'a>, &'a EffectiveDecision)>,
) -> Vec<HeaderValue> {
    let is_visible = |limit: &DescriptorLimit<'_>| match limit {
        DescriptorLimit::Unlimited => false,
        DescriptorLimit::Zero(_) => true,
        DescriptorLimit::Limited { limit, .. } => limit.mode().is_visible(),
    };
    let tightness = |answer: &EffectiveDecision| {
        (answer.passes(), answer.decision.remaining, Reverse(answer.decision.reset_after))
    };
    let visible = answered.filter(|(limit, _)| is_visible(limit)).map(|(_, answer)| answer);
    let visible = visible.filter(|answer| answer.decision.known_remaining().is_some());
    let Some(tightest) = visible.min_by_key(|answer| tightness(answer)) else { return Vec::new() };
    let decision = &tightest.decision;
    // A denial adds two.
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
    answered: impl Iterator<Item = (&'a DescriptorLimit<'a>, &'a EffectiveDecision)> + Clone,
) {
    let retries = answered.clone().filter_map(|(_, answer)| match answer.decision.verdict {
        Verdict::Deny(retry) => Some(retry_after(retry)),
        _ => None,
    });
    // If one of the limits never admits the request, waiting does not help.
    let longest = retries.reduce(|longest, other| Some(longest?.max(other?))).flatten();
    let fields = &mut response.response_headers_to_add;
    fields.extend(longest.map(|wait| number(RETRY_AFTER, wait.as_secs_ceil().max(1))));
    let fallback = answered.filter(|(_, answer)| !answer.passes()).find_map(|(limit, _)| {
        let limit = limit.limit()?;
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
        // The time of the next release is not known.
        Retry::OnRelease => Some(Span::from_secs(1)),
        Retry::Never => None,
    }
}

/// Caps a number at the maximum of a structured field, as over HTTP.
fn in_field(number: u64) -> u64 {
    number.min(FIELD_INTEGER_MAX)
}

fn number(name: &str, number: u64) -> HeaderValue {
    field(name, itoa::Buffer::new().format(number).to_owned())
}

fn field(name: &str, value: String) -> HeaderValue {
    HeaderValue { key: name.to_owned(), value, raw_value: Vec::new() }
}

fn metadata(name: &str, limit: &DescriptorLimit<'_>) -> prost_types::Struct {
    let limit = limit.limit().map(|limit| limit.name().to_owned()).unwrap_or_default();
    let value = prost_types::Value { kind: Some(Kind::StringValue(limit)) };
    prost_types::Struct { fields: [(name.to_owned(), value)].into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::grpc::proto::RateLimit;

    fn rendered(decision: Decision) -> (DescriptorStatus, Vec<String>) {
        let description = RateLimit { requests_per_unit: 7, ..RateLimit::default() };
        let (limit, answer) =
            (DescriptorLimit::Zero(description), EffectiveDecision::enforced(decision));
        let mut response = response([(&limit, &answer)].into_iter());
        let fields = response.response_headers_to_add.iter();
        let fields = fields.map(|field| format!("{}: {}", field.key, field.value)).collect();
        (response.statuses.remove(0), fields)
    }

    // Envoy adds header fields of its own for a status with a limit.
    #[test]
    fn envoy_gets_no_quota_that_the_store_has_not_confirmed() {
        let (status, fields) = rendered(Decision::without_state(Verdict::Allow));
        assert_eq!((status.current_limit, status.duration_until_reset), (None, None));
        assert_eq!(status.limit_remaining, 0, "the number is not known");
        assert!(fields.is_empty(), "{fields:?}");
        let wait = Span::from_secs(2);
        let denied = Decision::without_state(Verdict::Deny(Retry::After(wait)));
        let (status, fields) = rendered(denied);
        assert_eq!(status.current_limit.map(|limit| limit.requests_per_unit), Some(7));
        assert_eq!(status.limit_remaining, 0);
        assert_eq!(status.duration_until_reset.map(|reset| reset.seconds), Some(2));
        assert_eq!(fields, ["RateLimit-Remaining: 0", "RateLimit-Reset: 2", "Retry-After: 2"]);
    }

    // A client retries at the reset, and a rule of 0 never admits it.
    #[test]
    fn a_rule_that_admits_nothing_has_no_reset() {
        let gate = tidegate::Gate::new("0/s".parse().expect("it is a rule"));
        for decision in [gate.check(), gate.check_n(0)] {
            let (status, fields) = rendered(decision);
            assert_eq!(status.duration_until_reset, None);
            assert_eq!(fields, ["RateLimit-Limit: 0", "RateLimit-Remaining: 0"]);
        }
    }

    // RFC 9651, 3.3.1.
    #[test]
    fn no_field_exceeds_the_maximum_integer_of_structured_fields() {
        let mut decision = Decision::UNLIMITED;
        (decision.limit, decision.remaining) = (1 << 53, 1 << 53);
        let (_, fields) = rendered(decision);
        let most = |name| format!("RateLimit-{name}: 999999999999999");
        assert_eq!(fields[..2], ["Limit", "Remaining"].map(most));
    }
}
