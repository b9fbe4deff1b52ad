//! For the expansion of `#[limit]` only: it may change with every version.
//!
//! Always   Several limits of one call pass together or cost nothing: permits are taken first, because they can be
//!          given back; then all rates are decided as one. A call that is given up while it waits gives back what it
//!          was charged.

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

/// The rule was read when the attribute was compiled.
fn rule(text: &str) -> Rule {
    text.parse().unwrap_or_else(|error| panic!("#[limit] has checked this rule: {error:?}"))
}

/// A cost of any integer type. One that is negative is as one that is too large: it is never admitted.
#[doc(hidden)]
#[inline]
pub fn cost(cost: impl TryInto<u64>) -> u64 {
    cost.try_into().unwrap_or(u64::MAX)
}

/// Waits for as long as the rule itself says.
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

/// One of several requests, and how long it would wait.
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

    /// What it asks when it has waited so long: with the max_wait that is left.
    fn ask_after(&self, waited: Span) -> Request<C> {
        self.request.clone().within(self.wait.saturating_sub(waited))
    }
}

/// Lets all of them pass, or none.
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

/// Asks, sleeps for as long as the slowest says, and asks again, while nobody's max_wait is at its end. Who is denied
/// has been charged nothing; who is told to wait has been charged by all, and gets it back on giving up.
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

/// What all limits were charged for a call that waits; given back if it is dropped before it is kept.
struct Charged<'a, C: Clock> {
    wants: &'a [Want<C>],
    joint: &'a Joint,
    clock: &'a C,
    /// When it was charged.
    now: Timestamp,
}

impl<C: Clock> Charged<'_, C> {
    /// The turn has come, and is used.
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
            // What has drained meanwhile is back already; to give it back again would be to give it twice.
            if waited < decision.reset_after {
                want.request.target.refund(want.request.cost);
            }
        }
    }
}

/// How long until it is worth asking again; `None` when somebody will not wait so long.
fn nap<C: Clock>(wants: &[Want<C>], joint: &Joint, waited: Span) -> Option<Span> {
    let nap_of = |(want, decision): (&Want<C>, &Decision)| {
        if !decision.is_deny() {
            return Some(Span::ZERO);
        }
        // A rule that makes requests wait has said by its denial that this one may not.
        let wait = if want.request.is_for_turn() { Span::ZERO } else { want.wait };
        decision.retry_after().filter(|retry| waited + *retry <= wait)
    };
    wants
        .iter()
        .zip(&joint.each)
        .map(nap_of)
        .try_fold(Span::ZERO, |longest, nap| Some(longest.max(nap?)))
}
