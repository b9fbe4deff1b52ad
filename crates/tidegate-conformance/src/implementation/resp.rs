//! RESP: `TIDE.*` commands of a Redis client.

use super::protocol_client::ProtocolClient;
use super::{DecisionResult, PartialDecision, Refusal, failed};
use tidegate::{ManualClock, Retry, Span, Verdict};
use tidegate_server::config::LimitConfig;
use tidegate_server::net::Addresses;
use tidegate_testbed::{Client, Reply};

/// A Redis client.
pub struct Resp(Client);

impl Resp {
    fn send(&mut self, words: &[&str]) -> Result<Reply, Refusal> {
        match self.0.command(words).map_err(failed)? {
            Reply::Error(why) => Err(Refusal::Failed(why)),
            reply => Ok(reply),
        }
    }

    fn decide(&mut self, words: &[&str]) -> DecisionResult {
        answer(&self.send(words)?)
    }
}

/// `[allowed, limit, remaining, retry_after_ms, reset_after_ms]`
fn answer(reply: &Reply) -> DecisionResult {
    let number = |place: usize| match reply.items().get(place) {
        Some(Reply::Integer(number)) => Ok(*number),
        other => Err(Refusal::Failed(format!("{other:?} is not an integer"))),
    };
    let span = |ms: i64| Span::from_millis(u64::try_from(ms).unwrap_or(0));
    let verdict = match (number(0)?, number(3)?) {
        (1, 0) => Verdict::Allow,
        (1, wait) => Verdict::Wait(span(wait)),
        (_, -1) => Verdict::Deny(Retry::Never),
        (_, -2) => Verdict::Deny(Retry::OnRelease),
        (_, retry) => Verdict::Deny(Retry::After(span(retry))),
    };
    // The reply to TIDE.ACQUIRE has the lease in place of the reset.
    let reset_after = number(4).ok().map(|ms| if ms < 0 { Span::MAX } else { span(ms) });
    let whole = |number: i64| u64::try_from(number).ok();
    let (limit, remaining) = (whole(number(1)?), whole(number(2)?));
    Ok(PartialDecision { verdict: verdict.into(), limit, remaining, reset_after })
}

impl ProtocolClient for Resp {
    fn connect(addresses: Addresses, _: &ManualClock) -> Result<Self, Refusal> {
        let address = addresses.resp.ok_or_else(|| failed("the server has no RESP listener"))?;
        Client::connect(address).map(Self).map_err(failed)
    }

    fn precision() -> Span {
        Span::from_millis(1)
    }

    fn check(&mut self, limit: &LimitConfig, key: &str, cost: u64) -> DecisionResult {
        self.decide(&["TIDE.CHECK", &limit.name, key, "COST", &cost.to_string()])
    }

    fn check_all(&mut self, limits: &[LimitConfig], key: &str, cost: u64) -> DecisionResult {
        let cost = cost.to_string();
        let mut words = vec!["TIDE.CHECKALL"];
        for limit in limits {
            words.extend([limit.name.as_str(), key, &cost]);
        }
        let reply = self.send(&words)?;
        // The combined decision comes first, and then that of each limit.
        answer(reply.items().first().unwrap_or(&Reply::Nil))
    }

    fn peek(&mut self, limit: &LimitConfig, key: &str, cost: u64) -> DecisionResult {
        self.decide(&["TIDE.PEEK", &limit.name, key, "COST", &cost.to_string()])
    }

    fn refund(&mut self, limit: &LimitConfig, key: &str, cost: u64) -> Result<(), Refusal> {
        self.send(&["TIDE.REFUND", &limit.name, key, "COST", &cost.to_string()]).map(drop)
    }

    fn reset(&mut self, limit: &LimitConfig, key: &str) -> Result<(), Refusal> {
        self.send(&["TIDE.RESET", &limit.name, key]).map(drop)
    }

    fn acquire(
        &mut self,
        limit: &LimitConfig,
        key: &str,
        cost: u64,
    ) -> Result<(PartialDecision, Option<String>), Refusal> {
        let reply = self.send(&["TIDE.ACQUIRE", &limit.name, key, "COST", &cost.to_string()])?;
        let mut answer = answer(&reply)?;
        let lease = match reply.items().get(4) {
            Some(lease @ Reply::Bulk(_)) => lease.text(),
            _ => return Ok((answer, None)),
        };
        // The reply has the duration of the lease in place of the wait.
        answer.verdict = Verdict::Allow.into();
        Ok((answer, Some(lease)))
    }

    fn release(&mut self, lease: &str) -> Result<(), Refusal> {
        self.send(&["TIDE.RELEASE", lease]).map(drop)
    }
}
