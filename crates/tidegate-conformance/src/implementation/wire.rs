//! A server, called over a protocol. Protocols differ only in how they encode requests and responses.

use super::served::{Served, Store};
use super::{
    DOUBLES_MAX, Http, Implementation, PartialDecision, PartialVerdict, Refusal, TakeRequest,
    Target,
};
use std::collections::VecDeque;
use tidegate::rule::Window;
use tidegate::{ManualClock, Retry, Span, Timestamp, Verdict};
use tidegate_server::config::{DescriptorConfig, LimitConfig};
use tidegate_server::matching::{DescriptorPart, KeyPart, Pattern};
use tidegate_server::net::Addresses;

/// A request of Envoy: the domain, and the entries of a descriptor.
pub(super) const DOMAIN: &str = "spec";
pub(super) const LIMIT_ENTRY: &str = "limit";
pub(super) const KEY_ENTRY: &str = "key";

/// A protocol.
pub trait Speaker: Sized {
    /// Connects to the server, which uses this clock.
    fn connect(addresses: Addresses, clock: &ManualClock) -> Result<Self, Refusal>;

    /// The resolution of its times.
    fn precision() -> Span;

    /// Receives responses that were due because the clock was set.
    fn settle(&mut self) -> Result<(), Refusal> {
        Ok(())
    }

    /// Decides.
    fn check(
        &mut self,
        limit: &LimitConfig,
        key: &str,
        cost: u64,
    ) -> Result<PartialDecision, Refusal>;

    /// Decides under several limits at once.
    fn check_all(
        &mut self,
        limits: &[LimitConfig],
        key: &str,
        cost: u64,
    ) -> Result<PartialDecision, Refusal>;

    /// Decides without charging.
    fn peek(
        &mut self,
        limit: &LimitConfig,
        key: &str,
        cost: u64,
    ) -> Result<PartialDecision, Refusal>;

    /// Refunds a charge.
    fn refund(&mut self, limit: &LimitConfig, key: &str, cost: u64) -> Result<(), Refusal>;

    /// Resets the key.
    fn reset(&mut self, limit: &LimitConfig, key: &str) -> Result<(), Refusal>;

    /// Acquires a permit, and returns the lease if the request was admitted.
    fn acquire(
        &mut self,
        limit: &LimitConfig,
        key: &str,
        cost: u64,
    ) -> Result<(PartialDecision, Option<String>), Refusal>;

    /// Releases a permit.
    fn release(&mut self, lease: &str) -> Result<(), Refusal>;
}

/// A server, and a client of it.
pub struct Wire<S> {
    /// The store of its limits, if they are not in memory.
    store: Option<Store>,
    clock: ManualClock,
    limits: Vec<LimitConfig>,
    talk: Option<Talk<S>>,
    /// Permits that are held: limit, key, cost and lease.
    held: VecDeque<(usize, String, u64, String)>,
    emulation: Option<&'static str>,
}

/// Fields in this order: the connection is dropped before the server.
struct Talk<S> {
    speaker: S,
    served: Served,
}

impl<S> Default for Wire<S> {
    fn default() -> Self {
        Self {
            store: None,
            clock: ManualClock::new(),
            limits: Vec::new(),
            talk: None,
            held: VecDeque::new(),
            emulation: None,
        }
    }
}

impl<S: Speaker> Wire<S> {
    /// Uses a server with its limits in Redis.
    ///
    /// # Panics
    ///
    /// If Redis is not installed.
    pub fn on_redis() -> Self {
        Self { store: Some(Store::start()), ..Self::default() }
    }

    fn at(&mut self, now: Timestamp, limit: usize) -> Result<(&mut S, &LimitConfig), Refusal> {
        // With such times, the server's fallback would decide.
        if self.store.is_some() && now.as_micros() >= DOUBLES_MAX {
            return Err(Refusal::CannotSay("times that doubles cannot count"));
        }
        self.clock.set(now);
        let failed = || Refusal::Failed(format!("there is no limit number {limit}"));
        let config = self.limits.get(limit).ok_or_else(failed)?;
        let talk = self.talk.as_mut().ok_or_else(failed)?;
        talk.speaker.settle()?;
        Ok((&mut talk.speaker, config))
    }

    /// Emulates a request with a longest acceptable wait, which no protocol has, by a peek before the request.
    fn take_within(
        &mut self,
        now: Timestamp,
        on: Target<'_>,
        cost: u64,
        wait_max: Span,
    ) -> Result<PartialDecision, Refusal> {
        let (speaker, limit) = self.at(now, on.limit)?;
        let seen = speaker.peek(limit, on.key, cost)?;
        let answer = match seen.verdict {
            PartialVerdict::Full(Verdict::Wait(wait)) if wait > wait_max => {
                let early = Span::from_micros(wait.as_micros() - wait_max.as_micros());
                let retry = super::round(early, S::precision());
                // The numbers of the peek are not those of the decision.
                let verdict = PartialVerdict::Full(Verdict::Deny(Retry::After(retry)));
                PartialDecision { verdict, remaining: None, reset_after: None, ..seen }
            }
            PartialVerdict::Full(_) => speaker.check(limit, on.key, cost)?,
            _ => return Err(Refusal::CannotSay("how long one would wait")),
        };
        self.emulation = Some("a maximum wait is emulated by a peek");
        Ok(answer)
    }

    /// Resets over HTTP, because Envoy's protocol has no reset.
    fn reset_over_http(&mut self, on: Target<'_>) -> Result<(), Refusal> {
        let Some(talk) = &self.talk else { return Ok(()) };
        let mut operator = Http::connect(talk.served.addresses(), &self.clock)?;
        operator.reset(&self.limits[on.limit], on.key)?;
        self.emulation = Some("a reset is sent over HTTP");
        Ok(())
    }
}

fn config(number: usize, rule: &str) -> Result<LimitConfig, Refusal> {
    let rule =
        rule.parse().map_err(|error: tidegate::RuleError| Refusal::Failed(error.to_string()))?;
    let name = format!("limit{number}");
    let part = |key: &str, value: Option<&str>| DescriptorPart {
        key: key.to_owned(),
        value: value.map(|value| Pattern(value.to_owned())),
    };
    let descriptor = DescriptorConfig {
        domain: DOMAIN.to_owned(),
        entries: vec![part(LIMIT_ENTRY, Some(&name)), part(KEY_ENTRY, None)],
        replaces: Vec::new(),
    };
    // The same key as over the other protocols.
    let key = vec![KeyPart::Descriptor(KEY_ENTRY.to_owned())];
    Ok(LimitConfig { descriptor: Some(descriptor), key, ..LimitConfig::new(name, rule) })
}

impl<S: Speaker> Implementation for Wire<S> {
    fn begin(&mut self, rules: &[&str], birth: Timestamp) -> Result<(), Refusal> {
        self.clock = ManualClock::at(birth);
        let limits = rules.iter().enumerate().map(|(number, rule)| config(number, rule));
        self.limits = limits.collect::<Result<_, _>>()?;
        self.held.clear();
        self.emulation = None;
        self.talk = None;
        let served = Served::start(self.limits.clone(), &self.clock, self.store.as_ref())?;
        let speaker = S::connect(served.addresses(), &self.clock)?;
        self.talk = Some(Talk { speaker, served });
        Ok(())
    }

    fn precision(&self) -> Span {
        S::precision()
    }

    fn emulation(&self) -> Option<&'static str> {
        self.emulation
    }

    fn take(
        &mut self,
        now: Timestamp,
        on: Target<'_>,
        ask: TakeRequest,
    ) -> Result<PartialDecision, Refusal> {
        if let Some(wait_max) = ask.wait_max {
            return self.take_within(now, on, ask.cost, wait_max);
        }
        let is_in_redis = self.store.is_some();
        let (speaker, limit) = self.at(now, on.limit)?;
        if !limit.rule.is_concurrency() {
            if is_in_redis && ask.cost >= DOUBLES_MAX {
                return Err(Refusal::CannotSay("costs that doubles cannot count"));
            }
            return speaker.check(limit, on.key, ask.cost);
        }
        let (answer, lease) = speaker.acquire(limit, on.key, ask.cost)?;
        if let Some(lease) = lease.filter(|_| ask.cost > 0) {
            self.held.push_back((on.limit, on.key.to_owned(), ask.cost, lease));
        }
        Ok(answer)
    }

    fn take_all(
        &mut self,
        now: Timestamp,
        key: &str,
        cost: u64,
    ) -> Result<PartialDecision, Refusal> {
        if self.limits.iter().any(|limit| limit.rule.is_concurrency()) {
            return Err(Refusal::CannotSay("holding a permit together with a rate"));
        }
        self.at(now, 0)?;
        let talk = self
            .talk
            .as_mut()
            .ok_or_else(|| Refusal::Failed("no client is connected".to_owned()))?;
        talk.speaker.check_all(&self.limits, key, cost)
    }

    fn peek(
        &mut self,
        now: Timestamp,
        on: Target<'_>,
        cost: u64,
    ) -> Result<PartialDecision, Refusal> {
        let (speaker, limit) = self.at(now, on.limit)?;
        speaker.peek(limit, on.key, cost)
    }

    fn refund(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        let (speaker, limit) = self.at(now, on.limit)?;
        speaker.refund(limit, on.key, cost)
    }

    fn release(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        let is_it = |(limit, key, held, _): &(usize, String, u64, String)| {
            *limit == on.limit && key == on.key && *held == cost
        };
        let held = self.held.iter().position(is_it).and_then(|place| self.held.remove(place));
        let (.., lease) =
            held.ok_or_else(|| Refusal::Failed(format!("nothing of cost {cost} is in flight")))?;
        self.at(now, on.limit)?.0.release(&lease)
    }

    fn reset(&mut self, now: Timestamp, on: Target<'_>) -> Result<(), Refusal> {
        let (speaker, limit) = self.at(now, on.limit)?;
        match speaker.reset(limit, on.key) {
            Err(Refusal::CannotSay(_)) => self.reset_over_http(on),
            done => done,
        }
    }

    fn change(&mut self, now: Timestamp, limit: usize, rule: &str) -> Result<(), Refusal> {
        self.at(now, limit)?;
        self.limits[limit] = config(limit, rule)?;
        let Some(talk) = &self.talk else { return Ok(()) };
        talk.served.reload(&self.limits, self.store.as_ref())
    }

    fn window(&mut self, _: Timestamp, _: Target<'_>) -> Result<Option<Window>, Refusal> {
        Err(Refusal::CannotSay("windows"))
    }
}
