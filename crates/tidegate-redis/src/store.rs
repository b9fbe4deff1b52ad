//! A store in Redis, and the limits in it.

use crate::connection::Settings;
use crate::connection::{Address, AddressError, Latencies, Node, ScriptRunner, ServerProblem};
use crate::limiter::{Builder, RedisLimiter, UnsupportedRule};
use std::sync::Arc;
use tidegate::{ManualClock, Rule};

/// A Redis or Valkey that holds limits for several processes.
///
/// It manages its own connections, and is cheap to clone.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate_redis::RedisStore;
///
/// let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
/// let logins = store.limiter("logins", "5/min sliding".parse()?)?;
/// assert!(logins.check("alice").await.is_allow());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RedisStore {
    pub(crate) runner: Arc<ScriptRunner>,
}

/// The health of a primary.
///
/// ```no_run
/// # async fn example(store: tidegate_redis::RedisStore) {
/// for server in store.health() {
///     println!("{}: {}", server.address, if server.is_up { "up" } else { &server.why_down });
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerHealth {
    /// The address of the server.
    pub address: String,
    /// Whether requests are sent to it.
    pub is_up: bool,
    /// The last failure.
    pub why_down: String,
}

impl RedisStore {
    /// Connects to the store at this [address](Address), and waits for it at most one second.
    ///
    /// If the store does not answer within that second, connecting continues in the background, and
    /// [`OnError`](crate::OnError) decides meanwhile. A program that must not start without Redis calls
    /// [`RedisLimiter::ready`] or reads [`health`](Self::health).
    ///
    /// # Errors
    /// The address is invalid.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), tidegate_redis::AddressError> {
    /// let store = tidegate_redis::RedisStore::connect("redis+sentinel://10.0.0.1,10.0.0.2/main").await?;
    /// if let Some(down) = store.health().iter().find(|server| !server.is_up) {
    ///     eprintln!("{} does not answer yet: {}", down.address, down.why_down);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(address: &str) -> Result<Self, AddressError> {
        Ok(Self::connect_with(&address.parse()?, Settings::default()).await)
    }

    /// Connects with other settings.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tidegate_redis::AddressError> {
    /// use tidegate_redis::{RedisStore, Settings};
    ///
    /// let address = "rediss://limiter:secret@cache.example".parse()?;
    /// let settings = Settings::default().connections(4);
    /// let store = RedisStore::connect_with(&address, settings).await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_with(address: &Address, settings: Settings) -> Self {
        Self { runner: ScriptRunner::open(address, settings, None).await }
    }

    /// Connects, and decides by this clock instead of Redis's, for tests.
    #[doc(hidden)]
    pub async fn connect_with_clock(
        address: &Address,
        settings: Settings,
        clock: ManualClock,
    ) -> Self {
        Self { runner: ScriptRunner::open(address, settings, Some(clock)).await }
    }

    /// Creates a limit, which all processes with this store and this name share.
    ///
    /// # Errors
    /// The numbers of the rule are too large for Redis's scripts.
    pub fn limiter(&self, name: &str, rule: Rule) -> Result<RedisLimiter, UnsupportedRule> {
        self.builder(name, rule).build()
    }

    /// Returns a builder, for a limit with other options than the default ones.
    ///
    /// ```no_run
    /// # async fn example(store: tidegate_redis::RedisStore) -> Result<(), Box<dyn std::error::Error>> {
    /// use tidegate_redis::OnError;
    ///
    /// let logins = store.builder("logins", "5/min".parse()?).on_error(OnError::Deny).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(&self, name: &str, rule: Rule) -> Builder {
        Builder::new(Arc::clone(&self.runner), name, rule)
    }

    /// Returns the problems of the servers that an operator should know about: a server may lose limits, is too old, or refuses
    /// a command. It takes several round trips and tries every command, so it suits the start of a program.
    ///
    /// ```no_run
    /// # async fn example(store: tidegate_redis::RedisStore) {
    /// for problem in store.examine().await {
    ///     eprintln!("{problem}");
    /// }
    /// # }
    /// ```
    pub async fn examine(&self) -> Vec<ServerProblem> {
        self.runner.servers.examine(&self.runner.settings.prefix).await
    }

    /// Returns the latencies of the scripts that were sent, until the answer or the deadline.
    pub fn round_trips(&self) -> &Latencies {
        self.runner.servers.round_trips()
    }

    /// Returns the health of all known primaries.
    pub fn health(&self) -> Vec<ServerHealth> {
        let health = |node: &Arc<Node>| ServerHealth {
            address: node.address(),
            is_up: node.is_up(),
            why_down: node.why_down(),
        };
        self.runner.servers.nodes().iter().map(health).collect()
    }
}
