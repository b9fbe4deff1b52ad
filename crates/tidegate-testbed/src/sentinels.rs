//! A primary with replicas, and three sentinels that promote a replica when the primary is down.
//!
//! Always   After the start, every sentinel knows the other two and all replicas, so that a failover can begin at once and
//!          the first seconds of a test are deterministic.

use std::net::SocketAddr;
use std::time::Duration;

use crate::redis::{RedisServer, Reply};
use crate::wait::{PATIENCE, eventually, poll};

const NAME: &str = "tidegate";
const SENTINELS: usize = 3;
const QUORUM: usize = 2;

/// Time without a reply after which a primary counts as down.
const DOWN_AFTER_MS: u64 = 1_000;

/// An election without a winner is repeated after twice this time.
const FAILOVER_TIMEOUT_MS: u64 = 2_000;

/// The periods of the sentinels' messages, shorter than the defaults. After the machine was suspended, they distrust
/// their clock (TILT) for a second and not for half a minute.
///
/// Rejected Shorter ping periods: an election accepts only replicas whose last `INFO` is younger than five pings, and
///          while the primary is down, sentinels send `INFO` once a second, independent of the period.
const PERIODS: &str =
    "INFO-PERIOD 500 PING-PERIOD 500 ASK-PERIOD 100 PUBLISH-PERIOD 200 TILT-PERIOD 1000";

/// One primary, its replicas, and three sentinels.
pub struct Sentinels {
    // Dropped first, so that they do not begin a failover while the servers are dropped.
    sentinels: Vec<RedisServer>,
    servers: Vec<RedisServer>,
}

impl Sentinels {
    /// Starts a primary with two replicas.
    pub fn start() -> Self {
        Self::with_replicas(2)
    }

    /// Starts a primary with this many replicas.
    pub fn with_replicas(replicas: usize) -> Self {
        let mut servers = vec![RedisServer::start()];
        for _ in 0..replicas {
            servers.push(RedisServer::builder().replica_of(&servers[0]).start());
        }
        let sentinels = (0..SENTINELS).map(|_| watch(&servers[0])).collect();
        let all = Self { sentinels, servers };
        eventually("every sentinel knows all others", PATIENCE, || {
            all.sentinels.iter().all(|sentinel| knows_all(sentinel, replicas))
        });
        all
    }

    /// Returns the name of the primary in the sentinels' configuration, whichever server it is.
    pub fn master_name(&self) -> &'static str {
        NAME
    }

    /// Returns the addresses of the sentinels.
    pub fn sentinel_addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(RedisServer::address).collect()
    }

    /// Returns the sentinels, for tests that pause or kill them.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Returns the primary and its replicas; the order has no meaning after a failover.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Returns the primary that the sentinels agree on; it may be dead.
    pub fn primary(&self) -> &RedisServer {
        poll(PATIENCE, || self.agreed()).expect("the sentinels agree")
    }

    /// Kills the primary, and returns it for a restart, after which it becomes a replica.
    pub fn kill_primary(&self) -> &RedisServer {
        let primary = self.primary();
        primary.kill();
        primary
    }

    /// Waits for a writable primary, after the previous one was killed or paused.
    pub fn wait_for_new_primary(&self, within: Duration) -> &RedisServer {
        let writable = || self.agreed().filter(|server| server.is_awake() && is_primary(server));
        poll(within, writable).unwrap_or_else(|| {
            let logs: Vec<String> = self.sentinels.iter().map(RedisServer::log).collect();
            panic!("no new primary within {within:?}:\n{}", logs.join("\n"))
        })
    }

    /// Returns the primary, if all sentinels that answer agree.
    fn agreed(&self) -> Option<&RedisServer> {
        let awake = self.sentinels.iter().filter(|sentinel| sentinel.is_awake());
        let mut named = awake.map(|sentinel| {
            let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME];
            sentinel.command(&command).items().get(1).map(Reply::text)
        });
        let port = named.next()??;
        let is_agreed = named.all(|other| other.as_ref() == Some(&port));
        let mut servers = self.servers.iter();
        is_agreed.then(|| servers.find(|server| server.port().to_string() == port))?
    }
}

fn watch(primary: &RedisServer) -> RedisServer {
    let sentinel = RedisServer::builder()
        .sentinel()
        .option("sentinel monitor", &format!("{NAME} 127.0.0.1 {} {QUORUM}", primary.port()))
        .option("sentinel down-after-milliseconds", &format!("{NAME} {DOWN_AFTER_MS}"))
        .option("sentinel failover-timeout", &format!("{NAME} {FAILOVER_TIMEOUT_MS}"))
        .start();
    let words: Vec<&str> = ["SENTINEL", "DEBUG"].into_iter().chain(PERIODS.split(' ')).collect();
    let reply = sentinel.command(&words);
    assert!(reply.is_ok(), "Redis 7 or later is needed: {reply:?}");
    sentinel
}

fn knows_all(sentinel: &RedisServer, replicas: usize) -> bool {
    let others = sentinel.command(&["SENTINEL", "SENTINELS", NAME]);
    let known = sentinel.command(&["SENTINEL", "REPLICAS", NAME]);
    // A replica that a sentinel does not know of cannot be elected.
    let is_linked = |replica: &Reply| replica.field("master-link-status").as_deref() == Some("ok");
    let is_heard = |other: &Reply| other.field("flags").as_deref() == Some("sentinel");
    others.items().iter().filter(|other| is_heard(other)).count() == SENTINELS - 1
        && known.items().iter().filter(|replica| is_linked(replica)).count() == replicas
}

fn is_primary(server: &RedisServer) -> bool {
    let role = server.try_command(&["ROLE"]);
    role.is_ok_and(|role| role.items().first().map(Reply::text).as_deref() == Some("master"))
}
