//! gRPC: Envoy's rate limit service, in the bytes of its messages.

use super::wire::{DOMAIN, KEY_ENTRY, LIMIT_ENTRY, Speaker};
use super::{Answer, Http, Patience, Refusal};
use prost::Message;
use std::pin::Pin;
use std::sync::Arc;
use tidegate::{Clock, ManualClock, Retry, Span, Timestamp, Verdict};
use tidegate_server::grpc::proto::{
    Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};
use tidegate_server::grpc::{RateLimits, Request};
use tidegate_server::server::Server;

type Pending = Pin<Box<dyn Future<Output = Result<RateLimitResponse, Refusal>>>>;

/// Envoy; and somebody with `curl`, for what Envoy has no words for.
pub struct Grpc {
    limits: Arc<RateLimits>,
    patience: Patience,
    clock: ManualClock,
    curl: Http,
    /// Who waits for their turn. Whoever goes away would give it back.
    waiting: Vec<Pending>,
}

impl Grpc {
    /// The answer, or how long the server waits before it gives one.
    fn ask(
        &mut self,
        descriptors: Vec<RateLimitDescriptor>,
    ) -> Result<Result<RateLimitResponse, Span>, Refusal> {
        let request = RateLimitRequest {
            domain: DOMAIN.to_owned(),
            descriptors,
            ..RateLimitRequest::default()
        };
        let (bytes, limits) = (request.encode_to_vec(), Arc::clone(&self.limits));
        let mut answer: Pending = Box::pin(async move {
            let read = Request::read(&bytes).map_err(failed)?;
            limits.answer(&read).await.map_err(failed)
        });
        let before = self.clock.alarms();
        if let Some(answer) = self.patience.wait_pinned(Pin::new(&mut answer)) {
            return answer.map(Ok);
        }
        self.waiting.push(answer);
        let count = |alarms: &[Timestamp], at| alarms.iter().filter(|alarm| **alarm == at).count();
        let alarms = self.clock.alarms();
        let alarm = alarms.iter().find(|at| count(&alarms, **at) > count(&before, **at));
        let alarm = alarm.ok_or_else(|| failed("the server waits for no time"))?;
        let is_for_ever = *alarm == Timestamp::MAX;
        Ok(Err(if is_for_ever { Span::MAX } else { ceil(alarm.since(self.clock.now())) }))
    }

    fn decide(&mut self, descriptors: Vec<RateLimitDescriptor>) -> Result<Answer, Refusal> {
        Ok(match self.ask(descriptors)? {
            Ok(response) => read(&response),
            Err(wait) => Answer {
                verdict: Verdict::Wait(wait),
                limit: None,
                remaining: None,
                reset_after: None,
            },
        })
    }
}

/// In whole seconds, as all times on this wire.
fn ceil(span: Span) -> Span {
    Span::from_secs(span.as_secs_ceil())
}

/// What HTTP says, as exactly as this wire would.
fn ceil_all(answer: Answer) -> Answer {
    let verdict = match answer.verdict {
        Verdict::Wait(wait) => Verdict::Wait(ceil(wait)),
        Verdict::Deny(Retry::After(retry)) => Verdict::Deny(Retry::After(ceil(retry))),
        verdict => verdict,
    };
    Answer { verdict, reset_after: answer.reset_after.map(ceil), ..answer }
}

fn failed(error: impl std::fmt::Display) -> Refusal {
    Refusal::Failed(error.to_string())
}

fn descriptor(limit: &str, key: &str, cost: u64) -> RateLimitDescriptor {
    let entry = |key: &str, value: &str| Entry { key: key.to_owned(), value: value.to_owned() };
    let entries = vec![entry(LIMIT_ENTRY, limit), entry(KEY_ENTRY, key)];
    RateLimitDescriptor { entries, hits_addend: Some(cost), ..RateLimitDescriptor::default() }
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
    fn new(server: Arc<Server>, patience: Patience, clock: ManualClock) -> Self {
        let limits = Arc::new(RateLimits::new(Arc::clone(&server)));
        let curl = Http::new(server, patience.clone(), clock.clone());
        Self { limits, patience, clock, curl, waiting: Vec::new() }
    }

    fn precision() -> Span {
        Span::from_secs(1)
    }

    fn check(&mut self, limit: &str, key: &str, cost: u64) -> Result<Answer, Refusal> {
        if cost == 0 {
            // To Envoy it is a look whether one more would pass.
            return self.curl.check(limit, key, cost).map(ceil_all);
        }
        self.decide(vec![descriptor(limit, key, cost)])
    }

    fn check_all(&mut self, limits: &[String], key: &str, cost: u64) -> Result<Answer, Refusal> {
        if cost == 0 {
            return self.curl.check_all(limits, key, cost).map(ceil_all);
        }
        self.decide(limits.iter().map(|limit| descriptor(limit, key, cost)).collect())
    }

    fn peek(&mut self, limit: &str, key: &str, cost: u64) -> Result<Answer, Refusal> {
        self.curl.peek(limit, key, cost).map(ceil_all)
    }

    fn refund(&mut self, limit: &str, key: &str, cost: u64) -> Result<(), Refusal> {
        let descriptor =
            RateLimitDescriptor { is_negative_hits: true, ..descriptor(limit, key, cost) };
        self.ask(vec![descriptor]).map(drop)
    }

    fn reset(&mut self, limit: &str, key: &str) -> Result<(), Refusal> {
        self.curl.reset(limit, key)
    }

    fn acquire(&mut self, _: &str, _: &str, _: u64) -> Result<(Answer, Option<String>), Refusal> {
        Err(Refusal::CannotSay("places in flight"))
    }

    fn release(&mut self, _: &str) -> Result<(), Refusal> {
        Err(Refusal::CannotSay("places in flight"))
    }
}
