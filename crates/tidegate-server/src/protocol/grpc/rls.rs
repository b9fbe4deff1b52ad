//! Envoy's rate limit service: decides about the descriptors of a request.
//!
//! Invariant A denied request is charged to no limit. (The reference server charges the other descriptors.)
//! Invariant There is one status for each descriptor, in the same order.
//! Order     Refunds come first, then peeks, then charges: a request that a peek denies charges nothing.

use super::limit_lookup::{DescriptorLimit, LimitLookup};
use super::proto::RateLimitResponse;
use super::reply;
use super::request::Request;
use crate::engine::{CheckError, EffectiveDecision, LimitRequest};
use crate::server::Server;
use crate::store::StoreError;
use arc_swap::ArcSwap;
use std::sync::Arc;
use tidegate::store::ClientId;
use tidegate::{Clock, Decision, Retry, Span, Verdict};
use tonic::Status;

/// The service, without its connections.
#[derive(Debug)]
pub struct RateLimits {
    server: Arc<Server>,
    lookup: ArcSwap<LimitLookup>,
}

/// What to do for a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Decide, and charge this cost.
    Charge(u64),
    /// Return whether a cost of 1 would pass.
    Peek,
    /// Refund this cost.
    Refund(u64),
}

/// A descriptor while it is decided.
struct DescriptorCheck<'a> {
    limit: DescriptorLimit<'a>,
    action: Action,
    answer: EffectiveDecision,
}

impl RateLimits {
    /// Returns the service of this server.
    pub fn new(server: Arc<Server>) -> Self {
        let lookup = ArcSwap::from_pointee(LimitLookup::new(server.engine.limits()));
        Self { server, lookup }
    }

    /// Returns the server.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Decides about a request of this program. If the rule makes the request wait, the answer comes after the wait.
    pub async fn answer(&self, request: &Request<'_>) -> Result<RateLimitResponse, Status> {
        self.answer_for(ClientId::OWN, request).await
    }

    /// Decides about a request of a peer, which gets its [share](tidegate::store::Shares) of the rules in descriptors.
    pub async fn answer_for(
        &self,
        peer: ClientId,
        request: &Request<'_>,
    ) -> Result<RateLimitResponse, Status> {
        let lookup = self.lookup();
        let limits = lookup.find_all(request, self.server.engine.by(peer))?;
        let actions = actions(request);
        let mut checks: Vec<DescriptorCheck<'_>> =
            limits.into_iter().zip(actions).map(DescriptorCheck::new).collect();
        self.decide(&mut checks).await.map_err(|error| refused(&error))?;
        self.wait(&checks).await;
        Ok(reply::response(checks.iter().map(|check| (&check.limit, &check.answer))))
    }

    /// Returns the lookup for the present limits.
    fn lookup(&self) -> arc_swap::Guard<Arc<LimitLookup>> {
        let limits = self.server.engine.limits();
        let lookup = self.lookup.load();
        if lookup.is_for(&limits) {
            return lookup;
        }
        // Two threads may both make a new one; either is right.
        self.lookup.store(Arc::new(LimitLookup::new(limits)));
        self.lookup.load()
    }

    async fn decide(&self, checks: &mut [DescriptorCheck<'_>]) -> Result<(), CheckError> {
        // Most requests have one descriptor, which needs no list.
        if let [check] = &mut *checks
            && let Some(charge) = check.charge()
        {
            check.answer = self.server.engine.check(&charge).await?;
            return Ok(());
        }
        for check in checks.iter_mut() {
            match check.action {
                Action::Refund(cost) => check.answer = self.refund(check, cost).await?,
                Action::Peek => check.answer = self.peek(check, 1).await?,
                Action::Charge(_) => {}
            }
        }
        if checks.iter().all(|check| check.answer.passes()) {
            return self.charge_all(checks).await;
        }
        for check in checks.iter_mut() {
            if let Action::Charge(cost) = check.action {
                check.answer = self.peek(check, cost).await?;
            }
        }
        Ok(())
    }

    async fn charge_all(&self, checks: &mut [DescriptorCheck<'_>]) -> Result<(), CheckError> {
        let asks: Vec<LimitRequest<'_>> =
            checks.iter().filter_map(DescriptorCheck::charge).collect();
        let joint = self.server.engine.check_all(&asks).await?;
        let charged = checks.iter_mut().filter(|check| check.charge().is_some());
        for (check, answer) in charged.zip(joint.each) {
            check.answer = answer;
        }
        Ok(())
    }

    /// Returns whether a cost would pass, with the present numbers.
    async fn peek(
        &self,
        check: &DescriptorCheck<'_>,
        cost: u64,
    ) -> Result<EffectiveDecision, StoreError> {
        let Some(request) = check.request(cost) else { return Ok(check.answer) };
        let answer = self.server.engine.peek(&request).await?;
        if !answer.passes() || answer.is_shadowed {
            return Ok(answer);
        }
        self.server.engine.peek(&LimitRequest { cost: 0, ..request }).await
    }

    async fn refund(
        &self,
        check: &DescriptorCheck<'_>,
        cost: u64,
    ) -> Result<EffectiveDecision, StoreError> {
        let Some(request) = check.request(cost) else { return Ok(check.answer) };
        self.server.engine.refund(&request).await?;
        self.server.engine.peek(&LimitRequest { cost: 0, ..request }).await
    }

    /// Waits for the longest wait of all limits. The request has been charged.
    async fn wait(&self, checks: &[DescriptorCheck<'_>]) {
        let wait = checks.iter().map(|check| match check.answer.decision.verdict {
            Verdict::Wait(wait) => wait,
            _ => Span::ZERO,
        });
        let longest = wait.max().unwrap_or(Span::ZERO);
        if !longest.is_zero() {
            let clock = self.server.engine.clock();
            clock.sleep_until(clock.now() + longest).await;
        }
    }
}

/// Returns the action for each descriptor, with its own cost or else the request's.
fn actions(request: &Request<'_>) -> impl Iterator<Item = Action> {
    let cost = u64::from(request.hits_addend.max(1));
    request.descriptors.iter().map(move |descriptor| {
        match (descriptor.hits_addend.unwrap_or(cost), descriptor.is_negative_hits) {
            (0, _) => Action::Peek,
            (cost, true) => Action::Refund(cost),
            (cost, false) => Action::Charge(cost),
        }
    })
}

impl<'a> DescriptorCheck<'a> {
    fn new((limit, action): (DescriptorLimit<'a>, Action)) -> Self {
        let is_denied =
            matches!(limit, DescriptorLimit::Zero(_)) && !matches!(action, Action::Refund(_));
        let answer = if is_denied { denied_forever() } else { EffectiveDecision::UNLIMITED };
        Self { limit, action, answer }
    }

    /// Returns the engine's request with this cost, if a limit counts the descriptor.
    fn request(&self, cost: u64) -> Option<LimitRequest<'_>> {
        match &self.limit {
            DescriptorLimit::Limited { limit, key, .. } => Some(LimitRequest { limit, key, cost }),
            DescriptorLimit::Unlimited | DescriptorLimit::Zero(_) => None,
        }
    }

    /// Returns the engine's request if the descriptor is to be charged.
    fn charge(&self) -> Option<LimitRequest<'_>> {
        match self.action {
            Action::Charge(cost) => self.request(cost),
            Action::Peek | Action::Refund(_) => None,
        }
    }
}

/// Returns the answer of a limit that admits nothing.
fn denied_forever() -> EffectiveDecision {
    let mut decision = Decision::UNLIMITED.deny(Retry::Never).decision;
    (decision.limit, decision.remaining) = (0, 0);
    EffectiveDecision { decision, is_shadowed: false }
}

/// Returns the status of an error; Envoy then follows its `failure_mode_deny`.
fn refused(error: &CheckError) -> Status {
    tracing::warn!(%error, "a rate limit request could not be decided");
    match error {
        CheckError::NotCheckable(error) => Status::invalid_argument(error.to_string()),
        CheckError::Store(error) => Status::unavailable(error.to_string()),
    }
}
