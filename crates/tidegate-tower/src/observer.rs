//! Observers of decisions: metrics, logs, tests.

use tidegate::load::Priority;
use tidegate::{Decision, Verdict};

/// Is called with every decision of a layer, in the task of the request, so it should be fast.
///
/// If several limits are decided together and some deny, it is called for the limits that deny: the others have admitted
/// nothing. A limit in shadow mode is decided separately and reported too, unless another limit denies the request. A
/// request that is rejected because it has no key is reported as a denial that [has no key](Event::has_key).
///
/// Any function that takes an [`Event`] is an observer:
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tidegate_tower::{Event, RateLimitLayer};
///
/// let denied = Arc::new(AtomicU64::new(0));
/// let counter = Arc::clone(&denied);
/// let layer = RateLimitLayer::per_ip("100/s burst 20")?.observe(move |event: &Event<'_>| {
///     counter.fetch_add(u64::from(event.decision.is_deny()), Ordering::Relaxed);
/// });
/// # Ok::<(), tidegate_tower::LimitError>(())
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Is called when a limit has decided.
    fn decided(&self, event: &Event<'_>);

    /// Returns whether events contain keys, which may be addresses or secrets of clients. Default: no.
    fn wants_keys(&self) -> bool {
        false
    }
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Observer for F {
    fn decided(&self, event: &Event<'_>) {
        self(event);
    }
}

/// The decision of a limit about a request.
///
/// ```
/// use tidegate_tower::Event;
///
/// fn log(event: &Event<'_>) {
///     println!("{}: {}", event.limit, event.verdict());
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The limit's name. It can be the label of a metric, since the number of limits is fixed.
    pub limit: &'a str,
    /// The decision, in shadow mode too. A shedder has no numbers: only the verdict of its decisions has a meaning.
    pub decision: Decision,
    /// Whether the limit is in shadow mode, so that the request passes whatever the decision is.
    pub is_shadow: bool,
    /// The cost of the request.
    pub cost: u64,
    /// The key, if the request has one and the observer [wants keys](Observer::wants_keys).
    pub key: Option<&'a [u8]>,
    /// Whether the request has a key. If it is rejected because it has none, or because the server does not provide client
    /// addresses, only the verdict of the decision has a meaning.
    pub has_key: bool,
    /// The priority of the request, if a [`ShedLayer`](crate::ShedLayer) has decided.
    pub priority: Option<Priority>,
}

impl Event<'_> {
    /// Returns `allow`, `wait` or `deny`; or `shadow` for a wait or denial that is not enforced.
    pub fn verdict(&self) -> &'static str {
        match self.decision.verdict {
            Verdict::Allow => "allow",
            _ if self.is_shadow => "shadow",
            Verdict::Wait(_) => "wait",
            Verdict::Deny(_) => "deny",
        }
    }
}

/// Logs denials, including those in shadow mode, at the level `info` with the target `tidegate`. Other decisions are logged at
/// `trace`.
///
/// ```
/// use tidegate_tower::{Log, RateLimitLayer};
///
/// let layer = RateLimitLayer::per_ip("100/s burst 20")?.observe(Log);
/// # Ok::<(), tidegate_tower::LimitError>(())
/// ```
#[cfg(feature = "tracing")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Log;

#[cfg(feature = "tracing")]
impl Observer for Log {
    fn decided(&self, event: &Event<'_>) {
        let (limit, verdict) = (event.limit, event.verdict());
        let remaining = event.decision.known_remaining();
        if !event.has_key {
            tracing::info!(target: "tidegate", limit, verdict, "no key to count by");
        } else if event.decision.is_deny() {
            let retry_after = event.decision.retry_after().map(tidegate::Span::as_duration);
            tracing::info!(target: "tidegate", limit, verdict, ?retry_after, "limit reached");
        } else {
            tracing::trace!(target: "tidegate", limit, verdict, remaining, "limit checked");
        }
    }
}
