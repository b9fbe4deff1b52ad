//! A primary with replicas, and three sentinels that make a replica the primary when it is gone.
//!
//! Always   When it is started, every sentinel knows the other two and all replicas, so that a failover can begin at
//!          once: what is discovered little by little would make the first seconds of every test a lottery.

use std::net::SocketAddr;
use std::time::Duration;

use crate::patience::{PATIENCE, eventually, poll};
use crate::redis::{RedisServer, Reply};

const NAME: &str = "tidegate";
const SENTINELS: usize = 3;
const QUORUM: usize = 2;

/// A primary that is silent for so long is down.
const DOWN_AFTER_MS: u64 = 1_000;

/// An election without a winner is tried again after twice this.
const FAILOVER_TIMEOUT_MS: u64 = 2_000;

/// How often sentinels look and talk: more often than by themselves. A machine that stood still makes them
/// distrust their clock for a second and not for half a minute.
///
/// Rejected Pings more often than that: an election takes only replicas whose last `INFO` is younger than five pings,
///          and while the primary is down it is asked for once a second, whatever the period.
const PERIODS: &str =
    "INFO-PERIOD 500 PING-PERIOD 500 ASK-PERIOD 100 PUBLISH-PERIOD 200 TILT-PERIOD 1000";

/// One primary, its replicas, and who watches over them.
pub struct Sentinels {
    // First, so that they do not begin a failover while the servers are dropped.
    sentinels: Vec<RedisServer>,
    servers: Vec<RedisServer>,
}

impl Sentinels {
    /// With two replicas.
    pub fn start() -> Self {
        Self::with_replicas(2)
    }

    /// With so many.
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

    /// What the sentinels call the primary, whichever server it is.
    pub fn master_name(&self) -> &'static str {
        NAME
    }

    /// Where the sentinels listen.
    pub fn sentinel_addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(RedisServer::address).collect()
    }

    /// The sentinels themselves, for tests that disturb them.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The primary and its replicas, in no order that means anything after a failover.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Who the primary is in the eyes of the sentinels; it may be dead.
    pub fn primary(&self) -> &RedisServer {
        poll(PATIENCE, || self.agreed()).expect("the sentinels agree")
    }

    /// Kills the primary, and returns it for a restart, after which it becomes a replica.
    pub fn kill_primary(&self) -> &RedisServer {
        let primary = self.primary();
        primary.kill();
        primary
    }

    /// Waits for a primary that can be written to, after the one before it was killed or paused.
    pub fn wait_for_new_primary(&self, within: Duration) -> &RedisServer {
        let writable = || self.agreed().filter(|server| server.is_awake() && is_primary(server));
        poll(within, writable).unwrap_or_else(|| {
            let logs: Vec<String> = self.sentinels.iter().map(RedisServer::log).collect();
            panic!("no new primary within {within:?}:\n{}", logs.join("\n"))
        })
    }

    /// The server that all sentinels that can answer take for the primary.
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
    // One that has not been heard of may not be elected.
    let is_linked = |replica: &Reply| replica.field("master-link-status").as_deref() == Some("ok");
    let is_heard = |other: &Reply| other.field("flags").as_deref() == Some("sentinel");
    others.items().iter().filter(|other| is_heard(other)).count() == SENTINELS - 1
        && known.items().iter().filter(|replica| is_linked(replica)).count() == replicas
}

fn is_primary(server: &RedisServer) -> bool {
    let role = server.try_command(&["ROLE"]);
    role.is_ok_and(|role| role.items().first().map(Reply::text).as_deref() == Some("master"))
}
