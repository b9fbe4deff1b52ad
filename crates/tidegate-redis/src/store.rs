//! A store in Redis, and the limits that are kept in it.

use crate::connection::Latencies;
use crate::connection::RedisClock;
use crate::connection::Settings;
use crate::connection::{Address, AddressError, Call, Deadline, Finding, Link, StoreError};
use crate::limiter::RedisLimiter;
use crate::limiter::{Builder, Unsuited};
use crate::script::Script;
use redis::Value;
use std::sync::Arc;
use std::time::Duration;
use tidegate::{ManualClock, Rule};
use tokio::runtime::Handle;

/// How long [`RedisStore::connect`] waits for a server that is not there yet.
const PATIENCE: Duration = Duration::from_secs(1);

/// Redis or Valkey, as a place for limits that many share.
///
/// It keeps its own connections, and is cheap to clone. Whether anybody is there shows with the first decision,
/// or by [`health`](Self::health).
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
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) link: Link,
    pub(crate) settings: Settings,
    pub(crate) clock: RedisClock,
    /// Where it was connected: what goes on in the background goes on there.
    pub(crate) runtime: Handle,
}

/// How a primary is.
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
pub struct Health {
    /// Where it is.
    pub address: String,
    /// Whether requests are sent to it.
    pub is_up: bool,
    /// What happened last, if not.
    pub why_down: String,
}

impl RedisStore {
    /// Connects to the store at this address ([its forms](Address)), and waits for it a second at the longest.
    ///
    /// A store that does not answer within that second is no error: the connection is made when it is there, and until then
    /// limits answer as their [`OnError`](crate::OnError) says. A program that is not to start without Redis asks
    /// [`RedisLimiter::ready`], or looks at [`health`](Self::health).
    ///
    /// # Errors
    ///
    /// If the address cannot be read. Nothing else is an error.
    ///
    /// # Examples
    ///
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

    /// The same, with other settings.
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
        Self::open(address, settings, RedisClock::default()).await
    }

    /// For tests: decisions are by this clock instead of Redis's.
    #[doc(hidden)]
    pub async fn connect_with_clock(
        address: &Address,
        settings: Settings,
        clock: ManualClock,
    ) -> Self {
        Self::open(address, settings, RedisClock::injected(clock)).await
    }

    async fn open(address: &Address, settings: Settings, clock: RedisClock) -> Self {
        let link = Link::open(address, &settings, PATIENCE).await;
        Self { inner: Arc::new(Inner { link, settings, clock, runtime: Handle::current() }) }
    }

    /// A limit that all who use this store and this name share.
    ///
    /// ```no_run
    /// # async fn example(store: tidegate_redis::RedisStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let logins = store.limiter("logins", "5/min sliding".parse()?)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn limiter(&self, name: &str, rule: Rule) -> Result<RedisLimiter, Unsuited> {
        self.builder(name, rule).build()
    }

    /// The same, with more to say about it.
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
        Builder::new(self.clone(), name, rule)
    }

    /// What an operator should know about the servers: whether they may lose limits, are too old, or do not let us do
    /// what we must. SentAt for at a start, for example; it takes a few round trips, and tries every command.
    ///
    /// ```no_run
    /// # async fn example(store: tidegate_redis::RedisStore) {
    /// for finding in store.examine().await {
    ///     eprintln!("{finding}");
    /// }
    /// # }
    /// ```
    pub async fn examine(&self) -> Vec<Finding> {
        self.inner.link.examine(&self.inner.settings.prefix).await
    }

    /// Returns how long its scripts took that were sent: until the answer, or until it was not waited for any more.
    ///
    /// ```no_run
    /// # async fn example(store: tidegate_redis::RedisStore) {
    /// let round_trips = store.round_trips();
    /// println!("{} scripts took {} s", round_trips.count(), round_trips.sum_seconds());
    /// # }
    /// ```
    pub fn round_trips(&self) -> &Latencies {
        self.inner.link.round_trips()
    }

    /// How its primaries are, as far as they are known.
    ///
    /// ```no_run
    /// # async fn example(store: tidegate_redis::RedisStore) {
    /// assert!(store.health().iter().all(|server| server.is_up));
    /// # }
    /// ```
    pub fn health(&self) -> Vec<Health> {
        let of = |node: &Arc<crate::connection::Node>| Health {
            address: node.address(),
            is_up: node.is_up(),
            why_down: node.why_down(),
        };
        self.inner.link.nodes().iter().map(of).collect()
    }
}

impl Inner {
    /// Runs a script. Its third argument is the time, in tests.
    pub(crate) async fn run(
        &self,
        script: &'static Script,
        keys: Vec<Vec<u8>>,
        mut args: Vec<Vec<u8>>,
        deadline: impl Into<Deadline>,
    ) -> Result<Value, StoreError> {
        // When Redis is away nothing is waited for: who asks in a loop would keep those from running who look for it.
        tokio::task::coop::consume_budget().await;
        let said = self.clock.said();
        if said.is_some() || args.len() > 2 {
            let rest = args.split_off(args.len().min(2));
            args.resize(2, Vec::new());
            args.push(said.unwrap_or_default());
            args.extend(rest);
        }
        self.link.call(&Call { script, keys, args, deadline: deadline.into() }).await
    }
}
