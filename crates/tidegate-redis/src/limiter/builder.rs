//! What there is to say about a limit before it is made.

use crate::cache::DeniedKeys;
use crate::cache::LeftKeys;
use crate::deferred_release::Returns;
use crate::fallback::Fallback;
use crate::fallback::OnError;
use crate::lease::Leases;
use crate::limit_context::Tally;
use crate::limiter::{Inner, RedisLimiter};
use crate::remote::Exact;
use crate::store::RedisStore;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::Rule;
use tidegate_core::TooLargeForLua;

/// What else there is to say about a limit; made by [`RedisStore::builder`].
///
/// ```no_run
/// # async fn example(store: tidegate_redis::RedisStore) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tidegate_redis::OnError;
///
/// let limiter = store
///     .builder("api", "100/s burst 20".parse()?)
///     .on_error(OnError::Local { nodes: 10 })
///     .deadline(Duration::from_millis(5))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "it is not made before `build`"]
pub struct Builder {
    store: RedisStore,
    name: String,
    rule: Rule,
    on_error: OnError,
    deadline: Option<Duration>,
    is_lent: bool,
}

/// A rule that Redis cannot keep.
///
/// ```no_run
/// # fn example(store: tidegate_redis::RedisStore) -> Result<(), tidegate::RuleError> {
/// let unsuited = store.limiter("huge", "1/week burst 9007199254740992".parse()?).unwrap_err();
/// println!("{unsuited}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{rule}` cannot be kept in Redis")]
#[non_exhaustive]
pub struct Unsuited {
    /// The rule.
    pub rule: String,
    /// Why not.
    pub source: TooLargeForLua,
}

impl Builder {
    pub(crate) fn new(store: RedisStore, name: &str, rule: Rule) -> Self {
        let (name, on_error) = (name.to_owned(), OnError::default());
        Self { store, name, rule, on_error, deadline: None, is_lent: false }
    }

    /// What happens when Redis does not answer. By itself, [`OnError::Local`] for one node.
    ///
    /// ```no_run
    /// # fn example(store: tidegate_redis::RedisStore) -> Result<(), Box<dyn std::error::Error>> {
    /// use tidegate_redis::OnError;
    ///
    /// let strict = store.builder("logins", "5/min".parse()?).on_error(OnError::Deny).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// How long an answer is waited for, if not as long as the store's settings say.
    ///
    /// ```no_run
    /// # fn example(store: tidegate_redis::RedisStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let soon = std::time::Duration::from_millis(5);
    /// let quick = store.builder("api", "100/s".parse()?).deadline(soon).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Takes ahead of use, in leases, and decides hot keys here, at memory's speed. No more is admitted than by the
    /// rule; half of its burst is kept back for what others have taken ahead. Rules that cannot be lent out
    /// (see `docs/guide/redis.md`) are decided in Redis as ever. All who share the limit must say the same.
    ///
    /// ```no_run
    /// # fn example(store: tidegate_redis::RedisStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let hot = store.builder("api", "10000/s".parse()?).lease(true).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lease(mut self, is_lent: bool) -> Self {
        self.is_lent = is_lent;
        self
    }

    /// The limiter. An error, if the rule's numbers are more than Redis's scripts can count.
    ///
    /// ```no_run
    /// # fn example(store: tidegate_redis::RedisStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = store.builder("api", "100/s".parse()?).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn build(self) -> Result<RedisLimiter, Unsuited> {
        if let Err(source) = self.rule.limit().lua_params() {
            return Err(Unsuited { rule: self.rule.to_string(), source });
        }
        let deadline = self.deadline.unwrap_or(self.store.inner.settings.deadline);
        let fallback = Fallback::new(&self.rule, self.on_error);
        let leases = self.is_lent.then(|| Leases::new(&self.rule));
        let (denied, left, tally) = (DeniedKeys::default(), LeftKeys::default(), Tally::default());
        let (store, name, rule, is_lent) = (self.store.inner, self.name, self.rule, self.is_lent);
        let inner = Arc::new_cyclic(|inner| {
            let exact = Exact::new(store, inner.clone(), name, rule, deadline, is_lent);
            let (returns, followed) = (Returns::default(), Mutex::default());
            let health = Arc::default();
            Inner { exact, fallback, denied, left, leases, tally, health, returns, followed }
        });
        let limiter = RedisLimiter { inner };
        limiter.keep();
        Ok(limiter)
    }
}
