//! A server, called over a protocol. Protocols differ only in how they encode requests and responses.

use super::in_flight::InFlight;
use super::protocol_client::{DOMAIN, KEY_ENTRY, LIMIT_ENTRY, ProtocolClient};
use super::served::{Served, Store};
use super::{
    DOUBLES_MAX, DecisionResult, Http, Implementation, PartialDecision, PartialVerdict, Refusal,
    TakeRequest, Target, failed, no_limit, parsed,
};
use tidegate::rule::Window;
use tidegate::{ManualClock, Retry, Span, Timestamp, Verdict};
use tidegate_server::config::{DescriptorConfig, LimitConfig};
use tidegate_server::matching::{DescriptorPart, KeyPart, Pattern};

/// A server, and a client of it.
pub struct Wire<S> {
    /// The store of its limits, if they are not in memory.
    store: Option<Store>,
    clock: ManualClock,
    limits: Vec<LimitConfig>,
    session: Option<Session<S>>,
    /// The requests in flight, with their leases.
    in_flight: InFlight<String>,
    emulation: Option<&'static str>,
}

/// A running server and its client. The order of the fields matters: the connection is dropped before the server.
struct Session<S> {
    client: S,
    served: Served,
}

impl<S> Default for Wire<S> {
    fn default() -> Self {
        Self {
            store: None,
            clock: ManualClock::new(),
            limits: Vec::new(),
            session: None,
            in_flight: InFlight::default(),
            emulation: None,
        }
    }
}

impl<S: ProtocolClient> Wire<S> {
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
            return Err(Refusal::Unsupported("times that doubles cannot count"));
        }
        self.clock.set(now);
        let config = self.limits.get(limit).ok_or_else(|| no_limit(limit))?;
        let session = self.session.as_mut().ok_or_else(|| no_limit(limit))?;
        session.client.settle()?;
        Ok((&mut session.client, config))
    }

    /// Emulates a request with a longest acceptable wait, which no protocol has, by a peek before the request.
    fn take_within(
        &mut self,
        now: Timestamp,
        on: Target<'_>,
        cost: u64,
        wait_max: Span,
    ) -> DecisionResult {
        let (client, limit) = self.at(now, on.limit)?;
        let seen = client.peek(limit, on.key, cost)?;
        let answer = match seen.verdict {
            PartialVerdict::Full(Verdict::Wait(wait)) if wait > wait_max => {
                let early = Span::from_micros(wait.as_micros() - wait_max.as_micros());
                let retry = super::round(early, S::precision());
                // The numbers of the peek are not those of the decision.
                let verdict = PartialVerdict::Full(Verdict::Deny(Retry::After(retry)));
                PartialDecision { verdict, remaining: None, reset_after: None, ..seen }
            }
            PartialVerdict::Full(_) => client.check(limit, on.key, cost)?,
            _ => return Err(Refusal::Unsupported("a longest acceptable wait")),
        };
        self.emulation = Some("a maximum wait is emulated by a peek");
        Ok(answer)
    }

    /// Resets over HTTP, because Envoy's protocol has no reset.
    fn reset_over_http(&mut self, on: Target<'_>) -> Result<(), Refusal> {
        let Some(session) = &self.session else { return Ok(()) };
        let mut operator = Http::connect(session.served.addresses(), &self.clock)?;
        operator.reset(&self.limits[on.limit], on.key)?;
        self.emulation = Some("a reset is sent over HTTP");
        Ok(())
    }
}

fn config(number: usize, rule: &str) -> Result<LimitConfig, Refusal> {
    let rule = parsed(rule)?;
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

impl<S: ProtocolClient> Implementation for Wire<S> {
    fn begin(&mut self, rules: &[&str], birth: Timestamp) -> Result<(), Refusal> {
        self.clock = ManualClock::at(birth);
        let limits = rules.iter().enumerate().map(|(number, rule)| config(number, rule));
        self.limits = limits.collect::<Result<_, _>>()?;
        self.in_flight = InFlight::default();
        self.emulation = None;
        self.session = None;
        let served = Served::start(self.limits.clone(), &self.clock, self.store.as_ref())?;
        let client = S::connect(served.addresses(), &self.clock)?;
        self.session = Some(Session { client, served });
        Ok(())
    }

    fn precision(&self) -> Span {
        S::precision()
    }

    fn emulation(&self) -> Option<&'static str> {
        self.emulation
    }

    fn take(&mut self, now: Timestamp, on: Target<'_>, ask: TakeRequest) -> DecisionResult {
        if let Some(wait_max) = ask.wait_max {
            return self.take_within(now, on, ask.cost, wait_max);
        }
        let is_in_redis = self.store.is_some();
        let (client, limit) = self.at(now, on.limit)?;
        if !limit.rule.is_concurrency() {
            if is_in_redis && ask.cost >= DOUBLES_MAX {
                return Err(Refusal::Unsupported("costs that doubles cannot count"));
            }
            return client.check(limit, on.key, ask.cost);
        }
        let (answer, lease) = client.acquire(limit, on.key, ask.cost)?;
        if let Some(lease) = lease {
            self.in_flight.add(on, ask.cost, lease);
        }
        Ok(answer)
    }

    fn take_all(&mut self, now: Timestamp, key: &str, cost: u64) -> DecisionResult {
        if self.limits.iter().any(|limit| limit.rule.is_concurrency()) {
            return Err(Refusal::Unsupported("holding a permit together with a rate"));
        }
        self.at(now, 0)?;
        let session = self.session.as_mut().ok_or_else(|| failed("no client is connected"))?;
        session.client.check_all(&self.limits, key, cost)
    }

    fn peek(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> DecisionResult {
        let (client, limit) = self.at(now, on.limit)?;
        client.peek(limit, on.key, cost)
    }

    fn refund(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        let (client, limit) = self.at(now, on.limit)?;
        client.refund(limit, on.key, cost)
    }

    fn release(&mut self, now: Timestamp, on: Target<'_>, cost: u64) -> Result<(), Refusal> {
        let lease = self.in_flight.remove(on, cost)?;
        self.at(now, on.limit)?.0.release(&lease)
    }

    fn reset(&mut self, now: Timestamp, on: Target<'_>) -> Result<(), Refusal> {
        let (client, limit) = self.at(now, on.limit)?;
        match client.reset(limit, on.key) {
            Err(Refusal::Unsupported(_)) => self.reset_over_http(on),
            done => done,
        }
    }

    fn change(&mut self, now: Timestamp, limit: usize, rule: &str) -> Result<(), Refusal> {
        self.at(now, limit)?;
        self.limits[limit] = config(limit, rule)?;
        let Some(session) = &self.session else { return Ok(()) };
        session.served.reload(&self.limits, self.store.as_ref())
    }

    fn window(&mut self, _: Timestamp, _: Target<'_>) -> Result<Option<Window>, Refusal> {
        Err(Refusal::Unsupported("windows"))
    }
}
