//! gRPC: Envoy's rate limit service, in the bytes of its messages.

use super::wire::{DOMAIN, KEY_ENTRY, LIMIT_ENTRY, Speaker};
use super::{Answer, Patience, Refusal};
use prost::Message;
use std::sync::Arc;
use tidegate::{Retry, Span, Verdict};
use tidegate_server::grpc::proto::{
    Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};
use tidegate_server::grpc::{RateLimits, Request};
use tidegate_server::server::Server;

/// Envoy.
pub struct Grpc {
    limits: RateLimits,
    patience: Patience,
}

impl Grpc {
    fn ask(&self, descriptors: Vec<RateLimitDescriptor>) -> Result<RateLimitResponse, Refusal> {
        let request = RateLimitRequest {
            domain: DOMAIN.to_owned(),
            descriptors,
            ..RateLimitRequest::default()
        };
        let bytes = request.encode_to_vec();
        let read = Request::read(&bytes).map_err(failed)?;
        match self.patience.wait(self.limits.answer(&read)) {
            Some(answer) => answer.map_err(failed),
            None => Err(Refusal::CannotSay("a wait: it is waited for")),
        }
    }
}

fn failed(error: impl std::fmt::Display) -> Refusal {
    Refusal::Failed(error.to_string())
}

fn descriptor(limit: &str, key: &str, cost: u64) -> Result<RateLimitDescriptor, Refusal> {
    if cost == 0 {
        return Err(Refusal::CannotSay(
            "a cost of nothing: it is a look whether one more would pass",
        ));
    }
    let entry = |key: &str, value: &str| Entry { key: key.to_owned(), value: value.to_owned() };
    let entries = vec![entry(LIMIT_ENTRY, limit), entry(KEY_ENTRY, key)];
    Ok(RateLimitDescriptor { entries, hits_addend: Some(cost), ..RateLimitDescriptor::default() })
}

fn read(response: &RateLimitResponse) -> Answer {
    let retry = response.response_headers_to_add.iter();
    let mut retry = retry.filter(|header| header.key.eq_ignore_ascii_case("retry-after"));
    let retry = retry.find_map(|header| header.value.parse().ok().map(Span::from_secs));
    let verdict = match (response.overall_code(), retry) {
        (Code::OverLimit, None) => Verdict::Deny(Retry::Never),
        (Code::OverLimit, Some(retry)) => Verdict::Deny(Retry::After(retry)),
        _ => Verdict::Allow,
    };
    let remaining = response.statuses.iter().map(|status| status.limit_remaining).min();
    let reset = |seconds: i64| Span::from_secs(u64::try_from(seconds).unwrap_or(0));
    let resets = response.statuses.iter().filter_map(|status| status.duration_until_reset.as_ref());
    Answer {
        verdict,
        limit: None,
        // The largest number stands for all that are larger.
        remaining: remaining.filter(|remaining| *remaining < u32::MAX).map(u64::from),
        reset_after: resets.map(|duration| reset(duration.seconds)).max(),
    }
}

impl Speaker for Grpc {
    fn new(server: Arc<Server>, patience: Patience) -> Self {
        Self { limits: RateLimits::new(server), patience }
    }

    fn precision() -> Span {
        Span::from_secs(1)
    }

    fn check(&mut self, limit: &str, key: &str, cost: u64) -> Result<Answer, Refusal> {
        Ok(read(&self.ask(vec![descriptor(limit, key, cost)?])?))
    }

    fn check_all(&mut self, limits: &[String], key: &str, cost: u64) -> Result<Answer, Refusal> {
        let descriptors = limits.iter().map(|limit| descriptor(limit, key, cost));
        Ok(read(&self.ask(descriptors.collect::<Result<_, _>>()?)?))
    }

    fn peek(&mut self, _: &str, _: &str, _: u64) -> Result<Answer, Refusal> {
        Err(Refusal::CannotSay("looks"))
    }

    fn refund(&mut self, limit: &str, key: &str, cost: u64) -> Result<(), Refusal> {
        let descriptor =
            RateLimitDescriptor { is_negative_hits: true, ..descriptor(limit, key, cost)? };
        self.ask(vec![descriptor]).map(drop)
    }

    fn reset(&mut self, _: &str, _: &str) -> Result<(), Refusal> {
        Err(Refusal::CannotSay("forgetting"))
    }

    fn acquire(&mut self, _: &str, _: &str, _: u64) -> Result<(Answer, Option<String>), Refusal> {
        Err(Refusal::CannotSay("places in flight"))
    }

    fn release(&mut self, _: &str) -> Result<(), Refusal> {
        Err(Refusal::CannotSay("places in flight"))
    }
}
