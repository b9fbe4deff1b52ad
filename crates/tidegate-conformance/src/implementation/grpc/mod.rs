//! gRPC: Envoy's rate limit service.
//!
//! Always   Operations that the protocol does not have are unsupported: permits, a reset, the length of a wait.
//! Cost 0   Is a peek with cost 1: it reports the current numbers, and whether one more request would be admitted. A
//!          request of cost 0, which is always admitted, cannot be expressed.
//! Peek     With cost 1 is that request. With a higher cost it is a request with a second descriptor that is always
//!          denied: then nothing is charged, and the status of the first descriptor tells whether it would have been
//!          admitted. The remaining quota is not reported.
//! Waits    The server waits before it responds.

mod calls;

use self::calls::{CallError, Calls, INVALID_ARGUMENT, Pending};
use super::protocol_client::{DOMAIN, KEY_ENTRY, LIMIT_ENTRY, ProtocolClient};
use super::{DecisionResult, PartialDecision, PartialVerdict, Refusal, failed};
use std::time::Duration;
use tidegate::{Clock, ManualClock, Retry, Span, Timestamp, Verdict};
use tidegate_server::config::LimitConfig;
use tidegate_server::net::Addresses;
use tidegate_server::protocol::grpc::proto::{
    Code, DescriptorStatus, Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse, Unit,
};
use tidegate_testbed::{PATIENCE, eventually};

/// A client like Envoy.
pub struct Grpc {
    calls: Calls,
    clock: ManualClock,
    /// Requests that wait, and when they will be admitted.
    waiting: Vec<(Timestamp, Pending)>,
}

/// Time between two checks whether the server waits for the clock.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

impl Grpc {
    /// Sends a request, and returns the response or how long the server waits before it responds.
    fn ask(
        &mut self,
        descriptors: Vec<RateLimitDescriptor>,
    ) -> Result<Result<RateLimitResponse, Span>, CallError> {
        let domain = DOMAIN.to_owned();
        let request = RateLimitRequest { domain, descriptors, ..RateLimitRequest::default() };
        let before = self.clock.alarms();
        let mut answer = self.calls.call(&request);
        let is_waited_for = || self.clock.sleepers() > before.len();
        let heard = self.calls.wait(&mut answer, CHECK_INTERVAL, is_waited_for);
        if let Some(answer) = heard.map_err(|error| CallError::Broken(error.to_string()))? {
            return answer.map(Ok);
        }
        let count = |alarms: &[Timestamp], at| alarms.iter().filter(|alarm| **alarm == at).count();
        let alarms = self.clock.alarms();
        let alarm = alarms.iter().find(|at| count(&alarms, **at) > count(&before, **at));
        let none =
            || CallError::Broken("the server neither responds nor waits for a time".to_owned());
        let alarm = *alarm.ok_or_else(none)?;
        self.waiting.push((alarm, answer));
        let is_for_ever = alarm == Timestamp::MAX;
        Ok(Err(if is_for_ever { Span::MAX } else { ceil(alarm.since(self.clock.now())) }))
    }

    /// Sends a request whose response comes at once.
    fn ask_now(
        &mut self,
        descriptors: Vec<RateLimitDescriptor>,
    ) -> Result<RateLimitResponse, Refusal> {
        let answer = self.ask(descriptors)?;
        answer.map_err(|wait| Refusal::Failed(format!("the server waits for {wait}")))
    }

    fn decide(&mut self, limits: &[LimitConfig], key: &str, cost: u64) -> DecisionResult {
        let descriptors = limits.iter().map(|limit| descriptor(limit, key, cost)).collect();
        match self.ask(descriptors)? {
            Ok(response) => read(&response, limits),
            Err(wait) => Ok(verdict_only(Verdict::Wait(wait))),
        }
    }

    /// Returns the current numbers. The verdict is about one more request, so it is dropped.
    fn look(&mut self, limits: &[LimitConfig], key: &str) -> DecisionResult {
        let descriptors = limits.iter().map(|limit| descriptor(limit, key, 0)).collect();
        let answer = read(&self.ask_now(descriptors)?, limits)?;
        if answer.verdict != PartialVerdict::Full(Verdict::Allow) && answer.remaining != Some(0) {
            return Err(failed(format!(
                "{answer:?}: permits remain, but a request of cost 1 would be denied"
            )));
        }
        Ok(PartialDecision { verdict: PartialVerdict::Unknown, ..answer })
    }
}

/// Makes a decision of a verdict alone.
fn verdict_only(verdict: Verdict) -> PartialDecision {
    PartialDecision { verdict: verdict.into(), limit: None, remaining: None, reset_after: None }
}

/// Rounds up to whole seconds, the resolution of this protocol.
fn ceil(span: Span) -> Span {
    Span::from_secs(span.as_secs_ceil())
}

fn descriptor(limit: &LimitConfig, key: &str, cost: u64) -> RateLimitDescriptor {
    let entry = |key: &str, value: &str| Entry { key: key.to_owned(), value: value.to_owned() };
    let entries = vec![entry(LIMIT_ENTRY, &limit.name), entry(KEY_ENTRY, key)];
    RateLimitDescriptor { entries, hits_addend: Some(cost), ..RateLimitDescriptor::default() }
}

/// Returns a descriptor that is always denied: its own limit is zero.
fn shut() -> RateLimitDescriptor {
    let entry = Entry { key: KEY_ENTRY.to_owned(), value: String::new() };
    let unit = Unit::Second.into();
    let limit = RateLimitOverride { requests_per_unit: 0, unit, unit_multiplier: None };
    RateLimitDescriptor {
        entries: vec![entry],
        limit: Some(limit),
        ..RateLimitDescriptor::default()
    }
}

fn read(response: &RateLimitResponse, limits: &[LimitConfig]) -> DecisionResult {
    let field = |name: &str| {
        let mut fields = response.response_headers_to_add.iter();
        let field = fields.find(|field| field.key.eq_ignore_ascii_case(name))?;
        field.value.parse::<u64>().ok()
    };
    let verdict = match (response.overall_code(), field("Retry-After")) {
        (Code::OverLimit, None) => Verdict::Deny(Retry::Never),
        (Code::OverLimit, Some(retry)) => Verdict::Deny(Retry::After(Span::from_secs(retry))),
        (Code::Ok, _) => Verdict::Allow,
        (Code::Unknown, _) => return Err(failed("nothing is decided")),
    };
    if response.statuses.len() != limits.len() {
        return Err(failed(format!("{} statuses", response.statuses.len())));
    }
    for (status, limit) in response.statuses.iter().zip(limits) {
        names_its_limit(status, limit)?;
    }
    let remaining = response.statuses.iter().map(|status| u64::from(status.limit_remaining)).min();
    let reset = response.statuses.iter().map(until_reset).max().flatten();
    if limits.len() > 1 {
        // The header fields describe one of several limits. A status contains the largest number for every larger one.
        let remaining = remaining.filter(|left| *left < u32::MAX.into());
        let reset_after = reset.map(Span::from_secs);
        return Ok(PartialDecision {
            verdict: verdict.into(),
            limit: None,
            remaining,
            reset_after,
        });
    }
    let fields = ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"].map(field);
    let is_same =
        fields[1].map(|left| left.min(u32::MAX.into())) == remaining && fields[2] == reset;
    if !is_same {
        return Err(failed(format!(
            "fields {fields:?}, but {remaining:?} and {reset:?} in status"
        )));
    }
    let [limit, remaining, reset] = fields;
    let reset_after = reset.map(Span::from_secs);
    Ok(PartialDecision { verdict: verdict.into(), limit, remaining, reset_after })
}

fn until_reset(status: &DescriptorStatus) -> Option<u64> {
    u64::try_from(status.duration_until_reset.as_ref()?.seconds).ok()
}

/// Checks the limit in a status: it must have the limit's name, and the count of its rule rather than its burst.
fn names_its_limit(status: &DescriptorStatus, limit: &LimitConfig) -> Result<(), Refusal> {
    let rule = limit.rule.to_string();
    let digits: String = rule.chars().take_while(char::is_ascii_digit).collect();
    // A count that is too large for the field is its maximum.
    let count = digits.parse::<u64>().map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    let reported = status.current_limit.as_ref();
    let reported = reported.map(|limit| (limit.name.as_str(), limit.requests_per_unit));
    if count.is_ok_and(|count| reported == Some((limit.name.as_str(), count))) {
        return Ok(());
    }
    Err(failed(format!("`{rule}` is reported as {reported:?}")))
}

impl ProtocolClient for Grpc {
    fn connect(addresses: Addresses, clock: &ManualClock) -> Result<Self, Refusal> {
        let address = addresses.grpc.ok_or_else(|| failed("no server listens for gRPC"))?;
        Ok(Self { calls: Calls::connect(address)?, clock: clock.clone(), waiting: Vec::new() })
    }

    fn precision() -> Span {
        Span::from_secs(1)
    }

    /// Receives the responses that are due. The other requests keep waiting, and have read the clock.
    fn settle(&mut self) -> Result<(), Refusal> {
        let now = self.clock.now();
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (due, later): (Vec<_>, Vec<_>) = waiting.partition(|(at, _)| *at <= now);
        self.waiting = later;
        for (_, mut answer) in due {
            let answer = self.calls.wait(&mut answer, CHECK_INTERVAL, || false)?;
            let response = answer.ok_or_else(|| failed("the server does not answer"))??;
            if response.overall_code() != Code::Ok {
                return Err(failed("a request was denied after its wait"));
            }
        }
        let all = self.waiting.len();
        eventually("all waiting requests have read the clock", PATIENCE, || {
            self.clock.sleepers() == all
        });
        Ok(())
    }

    fn check(&mut self, limit: &LimitConfig, key: &str, cost: u64) -> DecisionResult {
        self.check_all(std::slice::from_ref(limit), key, cost)
    }

    fn check_all(&mut self, limits: &[LimitConfig], key: &str, cost: u64) -> DecisionResult {
        if cost == 0 { self.look(limits, key) } else { self.decide(limits, key, cost) }
    }

    fn peek(&mut self, limit: &LimitConfig, key: &str, cost: u64) -> DecisionResult {
        let limits = std::slice::from_ref(limit);
        match cost {
            0 => self.look(limits, key),
            1 => {
                let answer = read(&self.ask_now(vec![descriptor(limit, key, 0)])?, limits)?;
                if answer.verdict != PartialVerdict::Full(Verdict::Allow) {
                    return Ok(answer);
                }
                // Admitted, at once or after a wait. The numbers are those before the request.
                let limit = answer.limit;
                Ok(PartialDecision {
                    verdict: PartialVerdict::Passes,
                    limit,
                    remaining: None,
                    reset_after: None,
                })
            }
            _ => {
                let both = self.ask_now(vec![descriptor(limit, key, cost), shut()])?;
                let [status, _] = &both.statuses[..] else { return Err(failed("no two statuses")) };
                if both.overall_code() != Code::OverLimit {
                    return Err(failed("a peek was admitted, and so charged"));
                }
                names_its_limit(status, limit)?;
                let passes = status.code() == Code::Ok;
                let verdict = if passes { PartialVerdict::Passes } else { PartialVerdict::Denies };
                Ok(PartialDecision { verdict, limit: None, remaining: None, reset_after: None })
            }
        }
    }

    fn refund(&mut self, limit: &LimitConfig, key: &str, cost: u64) -> Result<(), Refusal> {
        let descriptor =
            RateLimitDescriptor { is_negative_hits: true, ..descriptor(limit, key, cost) };
        self.ask_now(vec![descriptor]).map(drop)
    }

    fn reset(&mut self, _: &LimitConfig, _: &str) -> Result<(), Refusal> {
        Err(Refusal::Unsupported("a reset"))
    }

    fn acquire(
        &mut self,
        limit: &LimitConfig,
        key: &str,
        cost: u64,
    ) -> Result<(PartialDecision, Option<String>), Refusal> {
        // The server must reject it, and not treat it as a request that ends at once.
        match self.ask(vec![descriptor(limit, key, cost.max(1))]) {
            Err(CallError::Refused { code, .. }) if code == INVALID_ARGUMENT => {
                Err(Refusal::Unsupported("requests in flight"))
            }
            other => Err(failed(format!("a concurrency limit was accepted: {other:?}"))),
        }
    }

    fn release(&mut self, _: &str) -> Result<(), Refusal> {
        Err(Refusal::Unsupported("requests in flight"))
    }
}
