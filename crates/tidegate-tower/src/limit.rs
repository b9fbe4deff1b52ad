//! One limit of a layer: its name, what it admits, whom it counts, what a request costs.

use crate::head::Head;
use crate::key::{Key, KeyLookup, MissingKey, PendingKey};
use crate::store::Store;
use http::{HeaderMap, StatusCode};
use std::fmt;
use std::sync::Arc;
use tidegate::{Clock, Limiter, Rule, RuleError, SystemClock};
use tidegate_http::Mode;

/// One limit of a layer.
///
/// ```
/// use http::HeaderName;
/// use tidegate_tower::{Key, Limit, OnMissing, RateLimitLayer};
///
/// let limit = Limit::new("user", "10/s burst 20")?
///     .key(Key::header(HeaderName::from_static("x-api-key")))
///     .on_missing(OnMissing::Deny);
/// let layer = RateLimitLayer::new(limit)?;
/// # Ok::<(), tidegate_tower::LimitError>(())
/// ```
#[derive(Clone)]
#[must_use = "a limit does nothing until a layer has it"]
pub struct Limit<C: Clock = SystemClock> {
    pub(crate) name: Arc<str>,
    pub(crate) store: Store<C>,
    pub(crate) clock: C,
    /// The rule that it was made with.
    pub(crate) rule: Rule,
    pub(crate) key: Key,
    cost: Cost,
    on_missing: Option<OnMissing>,
    pub(crate) mode: Mode,
    conditions: Vec<Condition>,
    pub(crate) after_response: AfterResponse,
}

/// What happens to a request that has no key.
///
/// ```
/// # use tidegate_tower::{Key, Limit, OnMissing};
/// let guests_share = Limit::new("user", "10/s")?
///     .key(Key::extension(|user: &u64| *user))
///     .on_missing(OnMissing::Shared);
/// # Ok::<(), tidegate_tower::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnMissing {
    /// All of them share one key.
    Shared,
    /// This limit does not count it.
    Allow,
    /// It is refused.
    Deny,
}

/// Why there is no such limit.
///
/// ```
/// use tidegate_tower::RateLimitLayer;
///
/// let error = RateLimitLayer::per_ip("concurrency 5").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "limit `per-ip` counts who is in flight (`concurrency 5`): give it to a ConcurrencyLayer"
/// );
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The text is no rule.
    #[error("the rule of limit `{name}` cannot be read")]
    Rule {
        /// The limit.
        name: String,
        /// What is wrong with its rule, and where.
        source: Box<RuleError>,
    },
    /// It belongs to the other layer.
    #[error("limit `{name}` counts who is in flight (`{rule}`): give it to a ConcurrencyLayer")]
    InFlight {
        /// The limit.
        name: String,
        /// Its rule.
        rule: String,
    },
    /// It belongs to the other layer.
    #[error(
        "limit `{name}` counts requests (`{rule}`), not who is in flight: give it to a RateLimitLayer"
    )]
    NotInFlight {
        /// The limit.
        name: String,
        /// Its rule.
        rule: String,
    },
    /// Only this process knows who is in flight here.
    #[error("limit `{name}` is in Redis: a ConcurrencyLayer counts in this process only")]
    Shared {
        /// The limit.
        name: String,
    },
    /// The layer cannot do what the limit was told, and would not do it.
    #[error("limit `{name}` is told `{option}`, which a {layer} cannot do: leave it out")]
    Unsuited {
        /// The limit.
        name: String,
        /// What it was told, by the method's name.
        option: &'static str,
        /// The layer that was to have it.
        layer: &'static str,
    },
}

/// As people read it: whoever returns it from `main`, or unwraps it, sees where the rule is wrong.
impl fmt::Debug for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { source, .. } => write!(f, "{self}: {source:?}"),
            _ => write!(f, "{self}"),
        }
    }
}

impl LimitError {
    pub(crate) fn bad(name: &str, source: RuleError) -> Self {
        Self::Rule { name: name.to_owned(), source: Box::new(source) }
    }

    pub(crate) fn unsuited(name: &str, option: &'static str, layer: &'static str) -> Self {
        Self::Unsuited { name: name.to_owned(), option, layer }
    }
}

#[derive(Clone)]
enum Cost {
    Fixed(u64),
    Keyed(Arc<dyn Fn(&Head<'_>) -> u64 + Send + Sync>),
}

#[derive(Clone)]
enum Condition {
    Prefix(Box<str>),
    Keyed(Arc<dyn Fn(&Head<'_>) -> bool + Send + Sync>),
}

/// Looks at a response.
pub(crate) type Look<T> = Arc<dyn Fn(StatusCode, &HeaderMap) -> T + Send + Sync>;

/// What happens when the response is known.
#[derive(Clone, Default)]
pub(crate) struct AfterResponse {
    pub(crate) refund: Option<Look<bool>>,
    pub(crate) charge: Option<Look<u64>>,
    pub(crate) is_charged_by_byte: bool,
}

impl AfterResponse {
    pub(crate) fn is_nothing(&self) -> bool {
        self.refund.is_none() && self.charge.is_none() && !self.is_charged_by_byte
    }

    /// How it was told what to do, for layers that do nothing after_response.
    fn told_by(&self) -> Option<&'static str> {
        if self.refund.is_some() {
            Some("refund_if")
        } else if self.charge.is_some() {
            Some("charge_by")
        } else {
            self.is_charged_by_byte.then_some("charge_bytes")
        }
    }
}

impl Limit {
    /// A limit of this rule, in memory, for all requests together until it has a [`key`](Self::key). The name is
    /// what clients and observers are told.
    ///
    /// ```
    /// # use tidegate_tower::Limit;
    /// let limit = Limit::new("site", "1000/s")?;
    /// let error = Limit::new("site", "1000/sec").unwrap_err();
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn new(name: &str, rule: &str) -> Result<Self, LimitError> {
        let rule = rule.parse().map_err(|source| LimitError::bad(name, source))?;
        Ok(Self::over(name, Limiter::new(rule)))
    }

    /// A limit that many processes share.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use tidegate_redis::RedisStore;
    /// use tidegate_tower::{Key, Limit, RateLimitLayer};
    ///
    /// let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
    /// let limiter = store.limiter("api", "100/s burst 20".parse()?)?;
    /// let layer = RateLimitLayer::new(Limit::redis("api", limiter).key(Key::ip()))?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "redis")]
    pub fn redis(name: &str, limiter: tidegate_redis::RedisLimiter) -> Self {
        let rule = limiter.rule();
        Self::of(name, Store::Redis(limiter), SystemClock::new(), rule)
    }
}

impl<C: Clock> Limit<C> {
    /// A limit over a limiter that you have made: with other bounds, another clock, or shared with other parts of
    /// the program. Clones of a limiter are the same limiter. It knows a key by its text, in bytes.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock};
    /// # use tidegate_tower::{Key, Limit};
    /// let limiter = Limiter::builder("100/s".parse()?).max_keys(10_000).with_clock(ManualClock::new());
    /// let limit = Limit::over("api", limiter.clone()).key(Key::ip());
    /// limiter.reset(&b"192.0.2.7"[..]); // this client may begin anew
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn over(name: &str, limiter: Limiter<C>) -> Self {
        let (clock, rule) = (limiter.clock().clone(), limiter.rule());
        Self::of(name, Store::Memory(limiter), clock, rule)
    }

    fn of(name: &str, store: Store<C>, clock: C, rule: Rule) -> Self {
        Self {
            name: name.into(),
            store,
            clock,
            rule,
            key: Key::everyone(),
            cost: Cost::Fixed(1),
            on_missing: None,
            mode: Mode::Enforce,
            conditions: Vec::new(),
            after_response: AfterResponse::default(),
        }
    }

    /// CallKey it counts.
    ///
    /// ```
    /// # use tidegate_tower::{Key, Limit};
    /// let limit = Limit::new("path", "10/s")?.key(Key::ip().and(Key::path()));
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn key(mut self, key: Key) -> Self {
        self.key = key;
        self
    }

    /// What happens to a request that has no key. Unless told, those without share one key; but where the server
    /// does not tell addresses, requests are answered with 500 and what to add, for that is a mistake.
    ///
    /// ```
    /// # use tidegate_tower::{Key, Limit, OnMissing};
    /// let limit = Limit::new("ip", "10/s")?.key(Key::ip()).on_missing(OnMissing::Allow);
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn on_missing(mut self, on_missing: OnMissing) -> Self {
        self.on_missing = Some(on_missing);
        self
    }

    /// What each request costs; 1 unless told.
    ///
    /// ```
    /// # use tidegate_tower::Limit;
    /// let reports = Limit::new("site", "100/s")?.path_prefix("/reports").cost(20);
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = Cost::Fixed(cost);
        self
    }

    /// What a request costs, by what it is. What costs nothing is not denied.
    ///
    /// ```
    /// # use tidegate_tower::Limit;
    /// let uploads = Limit::new("uploads", "10000000/s")?.cost_by(|head| {
    ///     let length = head.header("content-length").and_then(|length| length.parse().ok());
    ///     length.unwrap_or(1_000_000)
    /// });
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn cost_by(mut self, cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.cost = Cost::Keyed(Arc::new(cost));
        self
    }

    /// Counts only requests whose path begins so: `/api` is for `/api` and `/api/…`, not for `/apis`.
    ///
    /// The path is looked at as it came, as axum's routes do. Where something behind decodes it, `/%61pi` would get by:
    /// put the layer on the route instead. Within axum's `nest`, paths no longer begin with what they are nested under.
    ///
    /// ```
    /// # use tidegate_tower::Limit;
    /// let limit = Limit::new("search", "5/s")?.path_prefix("/search");
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn path_prefix(mut self, prefix: &str) -> Self {
        self.conditions.push(Condition::Prefix(prefix.trim_end_matches('/').into()));
        self
    }

    /// Counts only requests of which this is true. Several conditions must all be.
    ///
    /// ```
    /// # use tidegate_tower::Limit;
    /// let writes = Limit::new("writes", "5/s")?.when(|head| !head.method().is_safe());
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn when(mut self, condition: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.conditions.push(Condition::Keyed(Arc::new(condition)));
        self
    }

    /// Decides and counts, and everybody passes: to see what a limit would do. Observers are told; clients are not, in no
    /// field of a response. Where other limits deny a request, it is not charged, as it would not be if it were obeyed.
    ///
    /// ```
    /// # use tidegate_tower::{Key, Limit};
    /// let tried = Limit::new("next year", "10/s")?.key(Key::ip()).shadow();
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn shadow(mut self) -> Self {
        self.mode = Mode::Shadow;
        self
    }

    /// Gives the cost back if this is true of the response, and if there is none because the service failed. A
    /// request that its client gives up is not given back: that would make it free. For a
    /// [`RateLimitLayer`](crate::RateLimitLayer); others refuse it, as they do what is charged after_response.
    ///
    /// ```
    /// # use tidegate_tower::Limit;
    /// let limit = Limit::new("orders", "10/min")?.refund_if(|status, _| status.is_server_error());
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn refund_if(
        mut self,
        is_refunded: impl Fn(StatusCode, &HeaderMap) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.after_response.refund = Some(Arc::new(is_refunded));
        self
    }

    /// Charges this much more once the response is known, also if there is no room for it: who has used too much
    /// waits longer next time. In Redis, and by a rule that makes requests wait, no more is charged than there is room
    /// for.
    ///
    /// ```
    /// # use tidegate_tower::Limit;
    /// let failed = Limit::new("failed logins", "5/15min")?
    ///     .cost(1)
    ///     .charge_by(|status, _| if status == 401 { 1 } else { 0 });
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn charge_by(
        mut self,
        charge: impl Fn(StatusCode, &HeaderMap) -> u64 + Send + Sync + 'static,
    ) -> Self {
        self.after_response.charge = Some(Arc::new(charge));
        self
    }

    /// Charges the bytes of the response's body as they flow, also if there is no room for them: who has taken too
    /// much waits longer next time, however much it is. The request itself still costs its [`cost`](Self::cost). In Redis
    /// they are charged when the body is done. There, and by a rule that makes requests wait, no more is charged than there
    /// is room for.
    ///
    /// ```
    /// # use tidegate_tower::{Key, Limit};
    /// let egress = Limit::new("egress", "1000000/s")?.key(Key::ip()).charge_bytes();
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn charge_bytes(mut self) -> Self {
        self.after_response.is_charged_by_byte = true;
        self
    }

    /// For a layer that does nothing when the response is known.
    pub(crate) fn done_at_once(self, layer: &'static str) -> Result<Self, LimitError> {
        match self.after_response.told_by() {
            Some(option) => Err(LimitError::unsuited(&self.name, option, layer)),
            None => Ok(self),
        }
    }

    /// Whether it decides and counts, and stops nobody.
    #[inline]
    pub(crate) fn is_shadow(&self) -> bool {
        self.mode == Mode::Shadow
    }

    pub(crate) fn counts(&self, head: &Head<'_>) -> bool {
        self.conditions.iter().all(|condition| match condition {
            Condition::Prefix(prefix) => {
                let rest = head.path().strip_prefix(&**prefix);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Condition::Keyed(condition) => condition(head),
        })
    }

    /// CallKey it counts this request for.
    #[inline]
    pub(crate) fn key_of(&self, head: &Head<'_>) -> KeyLookup {
        self.key.find(head)
    }

    /// The same, where it has to be waited for.
    pub(crate) fn later_key_of(&self, head: &Head<'_>) -> PendingKey {
        self.key.later(head)
    }

    #[inline]
    pub(crate) fn cost_of(&self, head: &Head<'_>) -> u64 {
        match &self.cost {
            Cost::Fixed(cost) => *cost,
            Cost::Keyed(cost) => cost(head),
        }
    }

    /// What happens without a key; `None` where the server does not tell addresses, and nobody thought of it. A limit in
    /// the shadow stops nobody.
    pub(crate) fn without_key(&self, missing: MissingKey) -> Option<OnMissing> {
        match (self.on_missing, missing) {
            (Some(OnMissing::Deny), _) | (None, MissingKey::Peer) if self.is_shadow() => {
                Some(OnMissing::Allow)
            }
            (None, MissingKey::Peer) => None,
            (on_missing, _) => Some(on_missing.unwrap_or(OnMissing::Shared)),
        }
    }
}

impl<C: Clock> fmt::Debug for Limit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("name", &self.name)
            .field("rule", &self.rule)
            .field("key", &self.key)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
