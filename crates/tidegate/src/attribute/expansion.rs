//! Functions that the expansion of `#[limit]` calls. They may change with every version.
//!
//! Always   Several limits of one call are all charged, or none is: permits are taken first, because they can be released;
//!          then all rates are decided together. A call that is cancelled while it waits gets its charges back.

use crate::clock::Clock;
use crate::gate::Gate;
use crate::joint::check_all;
use crate::limiter::Limiter;
use crate::request::Request;
use crate::rule::Rule;
use crate::store::Joint;
use crate::wait::Permit;
use crate::wait::block_on;
pub use std::sync::LazyLock;
use tidegate_core::{Decision, Denied, Span, Timestamp, Verdict};

#[doc(hidden)]
pub fn gate(text: &str) -> Gate {
    Gate::new(rule(text))
}

#[doc(hidden)]
pub fn limiter(text: &str) -> Limiter {
    Limiter::new(rule(text))
}

/// Parses a rule that the attribute has already parsed at compile time.
fn rule(text: &str) -> Rule {
    text.parse().unwrap_or_else(|error| panic!("#[limit] has checked this rule: {error:?}"))
}

/// Converts a cost of any integer type. A negative cost becomes one that is too large, and is never admitted.
#[doc(hidden)]
#[inline]
pub fn cost(cost: impl TryInto<u64>) -> u64 {
    cost.try_into().unwrap_or(u64::MAX)
}

/// Waits for as long as the rule itself allows.
#[doc(hidden)]
pub async fn pass<C: Clock>(request: Request<C>) -> Result<Permit<C>, Denied> {
    let wait = request.rule_patience();
    request.within(wait).acquire().await
}

#[doc(hidden)]
pub fn pass_blocking<C: Clock>(request: Request<C>) -> Result<Permit<C>, Denied> {
    match request.rule_patience() {
        Span::ZERO => request.try_acquire(),
        wait => request.within(wait).block(),
    }
}

/// One of several requests, and its maximum wait.
#[doc(hidden)]
pub struct Want<C: Clock> {
    request: Request<C>,
    wait: Span,
}

impl<C: Clock> Want<C> {
    #[doc(hidden)]
    pub fn within(request: Request<C>, wait: Span) -> Self {
        Self { request: request.within(wait), wait }
    }

    #[doc(hidden)]
    pub fn as_its_rule_says(request: Request<C>) -> Self {
        let wait = request.rule_patience();
        Self::within(request, wait)
    }

    /// Returns the request after a wait of this length, with the rest of its maximum wait.
    fn ask_after(&self, waited: Span) -> Request<C> {
        self.request.clone().within(self.wait.saturating_sub(waited))
    }
}

/// Admits all requests, or none.
#[doc(hidden)]
pub async fn pass_all<C: Clock, const N: usize>(
    wants: [Want<C>; N],
) -> Result<Vec<Permit<C>>, Denied> {
    let (places, rates): (Vec<_>, Vec<_>) =
        wants.into_iter().partition(|want| want.request.is_for_permit());
    let mut permits = Vec::with_capacity(places.len());
    for want in places {
        permits.push(want.request.acquire().await?);
    }
    pass_rates(&rates).await?;
    Ok(permits)
}

#[doc(hidden)]
pub fn pass_all_blocking<C: Clock, const N: usize>(
    wants: [Want<C>; N],
) -> Result<Vec<Permit<C>>, Denied> {
    block_on(pass_all(wants))
}

/// Decides all rates together; after a denial, sleeps for the longest retry time and tries again, as long as every maximum wait
/// allows it. A denial charges nothing. A decision to wait has charged all limits, and cancelling the wait refunds them.
async fn pass_rates<C: Clock>(wants: &[Want<C>]) -> Result<(), Denied> {
    let Some(first) = wants.first() else { return Ok(()) };
    let clock = first.request.target.clock().clone();
    let start = clock.now();
    loop {
        let now = clock.now();
        let joint = check_all(wants.iter().map(|want| want.ask_after(now.since(start))));
        let nap = match joint.decision.verdict {
            Verdict::Allow => return Ok(()),
            Verdict::Wait(turn) => {
                let charged = Charged { wants, joint: &joint, clock: &clock, now };
                clock.sleep_until(now + turn).await;
                charged.keep();
                return Ok(());
            }
            Verdict::Deny(retry) => {
                nap(wants, &joint, now.since(start)).ok_or(joint.decision.deny(retry))?
            }
        };
        clock.sleep_until(now + nap).await;
    }
}

/// The charges of a call that waits; dropping them refunds all, unless they were kept.
struct Charged<'a, C: Clock> {
    wants: &'a [Want<C>],
    joint: &'a Joint,
    clock: &'a C,
    /// The time of the charge.
    now: Timestamp,
}

impl<C: Clock> Charged<'_, C> {
    /// Keeps the charges, because the turn has come.
    fn keep(mut self) {
        self.wants = &[];
    }
}

impl<C: Clock> Drop for Charged<'_, C> {
    fn drop(&mut self) {
        if self.wants.is_empty() {
            return;
        }
        let waited = self.clock.now().since(self.now);
        for (want, decision) in self.wants.iter().zip(&self.joint.each) {
            // The part that has drained meanwhile is refilled already, and must not be refunded as well.
            if waited < decision.reset_after {
                want.request.target.refund(want.request.cost);
            }
        }
    }
}

/// Returns the time until the next attempt; `None` if it exceeds the maximum wait of a request.
fn nap<C: Clock>(wants: &[Want<C>], joint: &Joint, waited: Span) -> Option<Span> {
    let nap_of = |(want, decision): (&Want<C>, &Decision)| {
        if !decision.is_deny() {
            return Some(Span::ZERO);
        }
        // A rule that delays requests denies only if the delay would be too long.
        let wait = if want.request.is_for_turn() { Span::ZERO } else { want.wait };
        decision.retry_after().filter(|retry| waited + *retry <= wait)
    };
    wants
        .iter()
        .zip(&joint.each)
        .map(nap_of)
        .try_fold(Span::ZERO, |longest, nap| Some(longest.max(nap?)))
}
