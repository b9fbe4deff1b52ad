//! A Redis Cluster: three primaries with a replica each, and slots that can be moved between them.
//!
//! Always   When it is started, every node knows all others and every replica has its copy, so that a failover can
//!          begin at once.

mod creation;
mod migration;
mod slots;

use std::net::SocketAddr;
use std::time::Duration;

pub use self::migration::Migration;
pub use self::slots::SLOTS;
use self::slots::View;
use crate::patience::{PATIENCE, poll};
use crate::port::Port;
use crate::redis::{Builder, RedisServer};

/// Six nodes; all are killed when it is dropped.
pub struct Cluster {
    nodes: Vec<Node>,
}

struct Node {
    server: RedisServer,
    /// Where the nodes talk with each other. Its number plus 10 000, where Redis would put it, may be somebody else's.
    bus: Port,
}

impl Cluster {
    /// With Redis's own settings, but a node that is silent for a second and a half is down.
    pub fn start() -> Self {
        Self::start_as(&RedisServer::builder())
    }

    /// With other settings, for example `("cluster-require-full-coverage", "no")`.
    pub fn start_as(builder: &Builder) -> Self {
        creation::create(builder)
    }

    /// Where all nodes listen, also those that are down.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers().map(RedisServer::address).collect()
    }

    /// The same as URLs.
    pub fn urls(&self) -> Vec<String> {
        self.servers().map(RedisServer::url).collect()
    }

    /// The nodes themselves, for tests that disturb them.
    pub fn servers(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().map(|node| &node.server)
    }

    /// The slot that a key belongs to.
    pub fn slot_of(&self, key: &str) -> u16 {
        let slot = self.awake().next().map(|node| node.command(&["CLUSTER", "KEYSLOT", key]));
        slot.and_then(|slot| slot.text().parse().ok()).expect("a node that runs can tell")
    }

    /// Who has the slot in the eyes of all nodes that run; it may be dead.
    pub fn primary_of_slot(&self, slot: u16) -> &RedisServer {
        let agreed = || {
            let mut ports = self.awake().map(|node| View::of(node)?.primary_of(slot));
            let port = ports.next()??;
            ports.all(|other| other == Some(port)).then_some(port)
        };
        let port = poll(PATIENCE, agreed).expect("the nodes agree on who has the slot");
        self.servers().find(|node| node.port() == port).expect("it is one of ours")
    }

    /// Kills who has the slot, and returns it for a restart, after which it becomes a replica.
    pub fn kill_primary_of_slot(&self, slot: u16) -> &RedisServer {
        let primary = self.primary_of_slot(slot);
        primary.kill();
        primary
    }

    /// Waits until every slot has a primary that runs, and all nodes that run say the same.
    pub fn wait_until_ok(&self, within: Duration) {
        if poll(within, || self.is_ok().then_some(())).is_none() {
            let logs: Vec<String> = self.servers().map(RedisServer::log).collect();
            panic!("the cluster is not ok within {within:?}:\n{}", logs.join("\n"));
        }
    }

    /// Begins to move the slot to another primary; until it is finished, clients are sent to and fro.
    pub fn begin_migration(&self, slot: u16) -> Migration<'_> {
        Migration::begin(self, slot)
    }

    fn awake(&self) -> impl Iterator<Item = &RedisServer> {
        self.servers().filter(|node| node.is_awake())
    }

    fn is_ok(&self) -> bool {
        let awake: Vec<u16> = self.awake().map(RedisServer::port).collect();
        let mut views = self.awake().map(|node| says_ok(node).then(|| View::of(node))?);
        let Some(Some(view)) = views.next() else { return false };
        view.is_covered_by(&awake) && views.all(|other| other.as_ref() == Some(&view))
    }
}

fn says_ok(node: &RedisServer) -> bool {
    let info = node.try_command(&["CLUSTER", "INFO"]);
    info.is_ok_and(|info| info.field("cluster_state").as_deref() == Some("ok"))
}
