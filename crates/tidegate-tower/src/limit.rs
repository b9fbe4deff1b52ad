//! One limit of a layer: its name, its rule, its key, and what a request costs.

use crate::head::Head;
use crate::key::{Key, KeyBytes, KeyLookup, MissingKey, PendingKey};
use http::{HeaderMap, StatusCode};
use std::fmt;
use std::sync::Arc;
use tidegate::store::LimitStore;
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
    pub(crate) store: Arc<dyn LimitStore>,
    pub(crate) clock: C,
    /// The rule when the limit was made. The store has the current one.
    pub(crate) rule: Rule,
    pub(crate) key: Key,
    cost: Cost,
    pub(crate) on_missing: Option<OnMissing>,
    pub(crate) mode: Mode,
    conditions: Vec<Condition>,
    pub(crate) after_response: AfterResponse,
}

/// The key that a request is counted by.
pub(crate) enum RequestKey {
    Key(KeyBytes),
    /// A part of the key has to be waited for.
    Pending(PendingKey),
    /// The limit does not count the request.
    Uncounted,
}

/// The request has no key, and the limit rejects requests without one.
pub(crate) struct KeyRequired;

/// What a limit does with a request that has no key.
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
    /// All requests without a key share one key.
    Shared,
    /// The limit does not count the request.
    Allow,
    /// The request is rejected.
    Deny,
}

/// Why a limit or a layer cannot be made.
///
/// ```
/// use tidegate_tower::RateLimitLayer;
///
/// let error = RateLimitLayer::per_ip("concurrency 5").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "limit `per-ip` counts requests in flight (`concurrency 5`): give it to a ConcurrencyLayer"
/// );
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The rule has a syntax error.
    #[error("the rule of limit `{name}` cannot be read")]
    Rule {
        /// The limit.
        name: String,
        /// The error, and its position in the rule.
        source: Box<RuleError>,
    },
    /// The rule counts requests in flight, and the layer counts something else.
    #[error("limit `{name}` counts requests in flight (`{rule}`): give it to a ConcurrencyLayer")]
    InFlight {
        /// The limit.
        name: String,
        /// Its rule.
        rule: String,
    },
    /// The rule counts requests over time, and the layer counts requests in flight.
    #[error(
        "limit `{name}` counts requests over time (`{rule}`), not requests in flight: give it to a RateLimitLayer"
    )]
    NotInFlight {
        /// The limit.
        name: String,
        /// Its rule.
        rule: String,
    },
    /// The limit is in Redis, and the layer needs its state in memory.
    #[error("limit `{name}` is in Redis, and this layer counts in this process only")]
    Shared {
        /// The limit.
        name: String,
    },
    /// The layer cannot do what an option of the limit asks for.
    #[error(
        "limit `{name}` has the option `{option}`, which a {layer} does not support: remove it"
    )]
    Unsuited {
        /// The limit.
        name: String,
        /// The method that set the option.
        option: &'static str,
        /// The layer that was given the limit.
        layer: &'static str,
    },
}

/// Formats the error for people, since `unwrap` and `main` print it: with the place in the rule that is wrong.
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
    ByRequest(Arc<dyn Fn(&Head<'_>) -> u64 + Send + Sync>),
}

#[derive(Clone)]
enum Condition {
    PathPrefix(Box<str>),
    Function(Arc<dyn Fn(&Head<'_>) -> bool + Send + Sync>),
}

/// A function of the head of a response.
pub(crate) type ResponseFunction<T> = Arc<dyn Fn(StatusCode, &HeaderMap) -> T + Send + Sync>;

/// What a limit does when the response is known.
#[derive(Clone, Default)]
pub(crate) struct AfterResponse {
    pub(crate) refund: Option<ResponseFunction<bool>>,
    pub(crate) charge: Option<ResponseFunction<u64>>,
    pub(crate) is_charged_by_byte: bool,
}

impl AfterResponse {
    pub(crate) fn is_nothing(&self) -> bool {
        self.option().is_none()
    }

    /// Returns the name of the method that asked for it.
    fn option(&self) -> Option<&'static str> {
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
    /// Makes a limit in memory, for all requests together until it has a [`key`](Self::key). Clients and observers see the
    /// name.
    ///
    /// # Errors
    /// If the rule has a syntax error.
    pub fn new(name: &str, rule: &str) -> Result<Self, LimitError> {
        let rule = rule.parse().map_err(|source| LimitError::bad(name, source))?;
        Ok(Self::over(name, Limiter::new(rule)))
    }

    /// Makes a limit that many processes share.
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
        Self::in_store(name, Arc::new(limiter), SystemClock::new())
    }
}

impl<C: Clock> Limit<C> {
    /// Makes a limit of an existing limiter, which may have other bounds or another clock, or be shared with other parts of
    /// the program. Clones of a limiter are the same limiter. Its keys are the bytes of the key's text.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock};
    /// # use tidegate_tower::{Key, Limit};
    /// let limiter = Limiter::builder("100/s".parse()?).max_keys(10_000).with_clock(ManualClock::new());
    /// let limit = Limit::over("api", limiter.clone()).key(Key::ip());
    /// limiter.reset(&b"192.0.2.7"[..]); // this client starts afresh
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn over(name: &str, limiter: Limiter<C>) -> Self {
        let clock = limiter.clock().clone();
        Self::in_store(name, Arc::new(limiter), clock)
    }

    fn in_store(name: &str, store: Arc<dyn LimitStore>, clock: C) -> Self {
        Self {
            name: name.into(),
            rule: store.rule(),
            store,
            clock,
            key: Key::everyone(),
            cost: Cost::Fixed(1),
            on_missing: None,
            mode: Mode::Enforce,
            conditions: Vec::new(),
            after_response: AfterResponse::default(),
        }
    }

    /// Sets the key that requests are counted by. Default: all requests have the same key.
    pub fn key(mut self, key: Key) -> Self {
        self.key = key;
        self
    }

    /// Sets what happens to a request that has no key. Default: such requests share one key; but if the server does not
    /// provide client addresses, which is a mistake in the program, they get status 500 and a body that says what to add.
    pub fn on_missing(mut self, on_missing: OnMissing) -> Self {
        self.on_missing = Some(on_missing);
        self
    }

    /// Sets the cost of each request. Default: 1.
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = Cost::Fixed(cost);
        self
    }

    /// Computes the cost of each request from its head. A request that costs 0 is never denied.
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
        self.cost = Cost::ByRequest(Arc::new(cost));
        self
    }

    /// Counts only requests whose path starts with these segments: `/api` matches `/api` and `/api/…`, but not `/apis`.
    ///
    /// The path is compared as it was sent, as axum's routes do. If a service behind the layer decodes paths, `/%61pi` would
    /// bypass the limit: put the layer on the route instead. Inside axum's `nest`, paths do not have the prefix of the nest.
    pub fn path_prefix(mut self, prefix: &str) -> Self {
        self.conditions.push(Condition::PathPrefix(prefix.trim_end_matches('/').into()));
        self
    }

    /// Counts only requests for which this returns `true`. If there are several conditions, all must hold.
    ///
    /// ```
    /// # use tidegate_tower::Limit;
    /// let writes = Limit::new("writes", "5/s")?.when(|head| !head.method().is_safe());
    /// # Ok::<(), tidegate_tower::LimitError>(())
    /// ```
    pub fn when(mut self, condition: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.conditions.push(Condition::Function(Arc::new(condition)));
        self
    }

    /// Decides and counts, but rejects no request: to see what a limit would do. Observers see its decisions; clients do not,
    /// in no field of a response. A request that another limit denies is not charged, as if this limit were enforced.
    pub fn shadow(mut self) -> Self {
        self.mode = Mode::Shadow;
        self
    }

    /// Refunds the cost if this returns `true` for the response, and if there is no response because the service failed. A
    /// request that its client gives up is not refunded: otherwise it would be free. Only a
    /// [`RateLimitLayer`](crate::RateLimitLayer) supports this and the other options that look at the response.
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

    /// Charges an additional cost once the response is known, even if more is charged than is left: a client that has used
    /// too much waits longer next time. In Redis, and under a rule that delays requests, no more is charged than is left.
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

    /// Charges the bytes of the response body as they are sent, even if more is charged than is left: a client that has taken
    /// too much waits longer next time. The request itself still costs its [`cost`](Self::cost). In Redis the bytes are charged
    /// when the body has ended; there, and under a rule that delays requests, no more is charged than is left.
    pub fn charge_bytes(mut self) -> Self {
        self.after_response.is_charged_by_byte = true;
        self
    }

    /// Returns the limiter, for a layer whose limits are in memory.
    pub(crate) fn limiter_in_memory(&self) -> Result<Limiter<C>, LimitError> {
        let limiter = self.store.as_any().downcast_ref::<Limiter<C>>().cloned();
        limiter.ok_or_else(|| LimitError::Shared { name: self.name.to_string() })
    }

    /// Refuses a limit that looks at the response, for a layer that does not.
    pub(crate) fn without_after_response(self, layer: &'static str) -> Result<Self, LimitError> {
        match self.after_response.option() {
            Some(option) => Err(LimitError::unsuited(&self.name, option, layer)),
            None => Ok(self),
        }
    }

    /// Refuses a limit that counts requests in flight, for a layer that counts something else.
    pub(crate) fn not_in_flight(self) -> Result<Self, LimitError> {
        if !self.rule.is_concurrency() {
            return Ok(self);
        }
        let (name, rule) = (self.name.to_string(), self.rule.to_string());
        Err(LimitError::InFlight { name, rule })
    }

    /// Returns whether the limit decides and counts, but rejects no request.
    #[inline]
    pub(crate) fn is_shadow(&self) -> bool {
        self.mode == Mode::Shadow
    }

    /// Returns whether all conditions hold for this request.
    fn counts(&self, head: &Head<'_>) -> bool {
        self.conditions.iter().all(|condition| match condition {
            Condition::PathPrefix(prefix) => {
                let rest = head.path().strip_prefix(&**prefix);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Condition::Function(condition) => condition(head),
        })
    }

    /// Returns the key that a request is counted by, or why the request is rejected.
    #[inline]
    pub(crate) fn request_key(&self, head: &Head<'_>) -> Result<RequestKey, KeyRequired> {
        if !self.counts(head) {
            return Ok(RequestKey::Uncounted);
        }
        match self.key.find(head) {
            KeyLookup::Key(key) => Ok(RequestKey::Key(key)),
            KeyLookup::Pending => Ok(RequestKey::Pending(self.key.later(head))),
            KeyLookup::Missing(missing) => {
                Ok(self.without_key(missing)?.map_or(RequestKey::Uncounted, RequestKey::Key))
            }
        }
    }

    /// Returns the key of a request whose key was pending, or `None` if the limit does not count the request.
    pub(crate) fn awaited_key(
        &self,
        key: Option<KeyBytes>,
    ) -> Result<Option<KeyBytes>, KeyRequired> {
        key.map_or_else(|| self.without_key(MissingKey::Part), |key| Ok(Some(key)))
    }

    #[inline]
    pub(crate) fn cost_of(&self, head: &Head<'_>) -> u64 {
        match &self.cost {
            Cost::Fixed(cost) => *cost,
            Cost::ByRequest(cost) => cost(head),
        }
    }

    /// Returns the key that requests without a key share, or `None` if the limit does not count them. A limit in shadow mode
    /// rejects no request.
    fn without_key(&self, missing: MissingKey) -> Result<Option<KeyBytes>, KeyRequired> {
        match (self.on_missing, missing) {
            (Some(OnMissing::Shared), _) | (None, MissingKey::Part) => Ok(Some(KeyBytes::new())),
            (Some(OnMissing::Allow), _) => Ok(None),
            (Some(OnMissing::Deny), _) | (None, MissingKey::Peer) if self.is_shadow() => Ok(None),
            (Some(OnMissing::Deny), _) | (None, MissingKey::Peer) => Err(KeyRequired),
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
