//! Who wants to hear of decisions: metrics, logs, tests.

use tidegate::load::Priority;
use tidegate::{Decision, Verdict};

/// Hears of every decision of a layer. It is called where requests are, so it should be quick.
///
/// Where several limits decide as one and some deny, it hears of these. The others were asked and have admitted nothing: they
/// are not heard of. A limit in the shadow decides by itself, and is heard of unless another denies: then it is not charged.
/// Who is refused because there is nobody to count is
/// heard of as a denial that [has no key](Event::has_key).
///
/// Any function that takes an [`Event`] is one:
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
    /// A limit has decided.
    ///
    /// ```
    /// use tidegate_tower::{Event, Observer};
    ///
    /// struct Silent;
    /// impl Observer for Silent {
    ///     fn decided(&self, _: &Event<'_>) {}
    /// }
    /// ```
    fn decided(&self, event: &Event<'_>);

    /// Whether it is to be told keys, which may be somebody's address or secret. Not unless it says so.
    ///
    /// ```
    /// use tidegate_tower::{Event, Observer};
    ///
    /// assert!(!(|_: &Event<'_>| ()).wants_keys());
    /// ```
    fn wants_keys(&self) -> bool {
        false
    }
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Observer for F {
    fn decided(&self, event: &Event<'_>) {
        self(event);
    }
}

/// What a limit has decided about a request.
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
    /// The limit's name. There are as many as limits: it may be a metric's label.
    pub limit: &'a str,
    /// What it decided, in the shadow too. A shedder has no numbers to tell: of its decisions, only the verdict means
    /// something.
    pub decision: Decision,
    /// Whether everybody passes, whatever it decided.
    pub is_shadow: bool,
    /// What the request costs.
    pub cost: u64,
    /// CallKey it counts, if the observer [wants to know](Observer::wants_keys) and there is somebody.
    pub key: Option<&'a [u8]>,
    /// Whether there was somebody to count. Who is refused for want of a key, or because the server tells no address, has
    /// asked for nothing: of the decision, only the verdict means something.
    pub has_key: bool,
    /// How much the request matters, where a [`ShedLayer`](crate::ShedLayer) has decided.
    pub priority: Option<Priority>,
}

impl Event<'_> {
    /// `allow`, `wait` or `deny`; `shadow` for what was not obeyed.
    ///
    /// ```
    /// use tidegate_tower::Event;
    ///
    /// fn is_harmless(event: &Event<'_>) -> bool {
    ///     event.verdict() != "deny"
    /// }
    /// ```
    pub fn verdict(&self) -> &'static str {
        match self.decision.verdict {
            Verdict::Allow => "allow",
            _ if self.is_shadow => "shadow",
            Verdict::Wait(_) => "wait",
            Verdict::Deny(_) => "deny",
        }
    }
}

/// Says in the log that a limit denies, or would deny: at the level `info`, under the target `tidegate`. Others are
/// told at `trace`.
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
            tracing::info!(target: "tidegate", limit, verdict, "nobody to count");
        } else if event.decision.is_deny() {
            let retry_after = event.decision.retry_after().map(tidegate::Span::as_duration);
            tracing::info!(target: "tidegate", limit, verdict, ?retry_after, "limit reached");
        } else {
            tracing::trace!(target: "tidegate", limit, verdict, remaining, "limit asked");
        }
    }
}
