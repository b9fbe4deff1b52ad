//! Options of a limit.

use crate::connection::ScriptRunner;
use crate::fallback::{Fallback, OnError};
use crate::limiter::{LimitContext, RedisLimiter};
use crate::remote::RemoteLimit;
use std::sync::Arc;
use std::time::Duration;
use tidegate::Rule;
use tidegate_core::TooLargeForLua;

/// Builds a [`RedisLimiter`]; created by [`RedisStore::builder`](crate::RedisStore::builder).
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
#[must_use = "`build` creates the limiter"]
pub struct Builder {
    runner: Arc<ScriptRunner>,
    name: String,
    rule: Rule,
    on_error: OnError,
    deadline: Duration,
    has_leases: bool,
}

/// The error for a rule whose numbers are too large for Redis's scripts.
///
/// ```no_run
/// # fn example(store: tidegate_redis::RedisStore) -> Result<(), tidegate::RuleError> {
/// let unsupported = store.limiter("huge", "1/week burst 9007199254740992".parse()?).unwrap_err();
/// println!("{unsupported}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{rule}` cannot be kept in Redis")]
#[non_exhaustive]
pub struct UnsupportedRule {
    /// The rule.
    pub rule: String,
    /// The reason.
    pub source: TooLargeForLua,
}

impl Builder {
    pub(crate) fn new(runner: Arc<ScriptRunner>, name: &str, rule: Rule) -> Self {
        let deadline = runner.settings.deadline;
        let (name, on_error) = (name.to_owned(), OnError::default());
        Self { runner, name, rule, on_error, deadline, has_leases: false }
    }

    /// Sets how requests are decided while Redis does not answer. The default is [`OnError::Local`] for one node.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Sets the maximum time that a decision waits for Redis. The default is
    /// [that of the store](crate::Settings::deadline), 20 ms.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets whether this process reserves quota of busy keys in Redis and decides their requests in memory.
    ///
    /// Leases never admit more than the rule, but at most half of the burst is admitted at once. Rules that cannot have leases
    /// (see `docs/guide/redis.md`) are decided in Redis as usual. All processes must agree on this option.
    pub fn lease(mut self, has_leases: bool) -> Self {
        self.has_leases = has_leases;
        self
    }

    /// Creates the limiter.
    ///
    /// # Errors
    /// The numbers of the rule are too large for Redis's scripts.
    pub fn build(self) -> Result<RedisLimiter, UnsupportedRule> {
        let Self { runner, name, rule, on_error, deadline, has_leases } = self;
        if let Err(source) = rule.limit().lua_params() {
            return Err(UnsupportedRule { rule: rule.to_string(), source });
        }
        let fallback = Fallback::new(&rule, on_error);
        let remote = RemoteLimit::new(runner, name, rule, deadline, has_leases);
        Ok(RedisLimiter { inner: LimitContext::new(remote, fallback, has_leases) })
    }
}
