//! A Redis Cluster: three primaries with a replica each, and slots that can be moved between them.
//!
//! Always   After the start, every node knows all others and every replica has its copy, so that a failover can begin at
//!          once.

mod creation;
mod migration;
mod slots;

use std::net::SocketAddr;
use std::time::Duration;

pub use self::migration::Migration;
pub use self::slots::SLOTS;
use self::slots::View;
use crate::port::Port;
use crate::redis::{Builder, RedisServer};
use crate::wait::{PATIENCE, poll};

/// A cluster of six nodes, which are killed when it is dropped.
pub struct Cluster {
    nodes: Vec<Node>,
}

struct Node {
    server: RedisServer,
    /// The port of the cluster bus. The default, 10 000 above the other port, may be in use by another program.
    bus: Port,
}

impl Cluster {
    /// Starts a cluster with Redis's defaults, except that a node counts as down after 1.5 seconds without a reply.
    pub fn start() -> Self {
        Self::start_as(&RedisServer::builder())
    }

    /// Starts a cluster with other settings, for example `("cluster-require-full-coverage", "no")`.
    pub fn start_as(builder: &Builder) -> Self {
        creation::create(builder)
    }

    /// Returns the addresses of all nodes, including those that are down.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers().map(RedisServer::address).collect()
    }

    /// Returns the URLs of all nodes, including those that are down.
    pub fn urls(&self) -> Vec<String> {
        self.servers().map(RedisServer::url).collect()
    }

    /// Returns the nodes, for tests that pause or kill them.
    pub fn servers(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().map(|node| &node.server)
    }

    /// Returns the slot of a key.
    pub fn slot_of(&self, key: &str) -> u16 {
        let slot = self.awake().next().map(|node| node.command(&["CLUSTER", "KEYSLOT", key]));
        slot.and_then(|slot| slot.text().parse().ok()).expect("a running node answers")
    }

    /// Returns the primary of the slot that all running nodes agree on; it may be dead.
    pub fn primary_of_slot(&self, slot: u16) -> &RedisServer {
        let agreed = || {
            let mut ports = self.awake().map(|node| View::of(node)?.primary_of(slot));
            let port = ports.next()??;
            ports.all(|other| other == Some(port)).then_some(port)
        };
        let port = poll(PATIENCE, agreed).expect("the nodes agree on the primary of the slot");
        self.servers().find(|node| node.port() == port).expect("it is one of ours")
    }

    /// Kills the primary of the slot, and returns it for a restart, after which it becomes a replica.
    pub fn kill_primary_of_slot(&self, slot: u16) -> &RedisServer {
        let primary = self.primary_of_slot(slot);
        primary.kill();
        primary
    }

    /// Waits until every slot has a running primary that all running nodes agree on.
    pub fn wait_until_ok(&self, within: Duration) {
        if poll(within, || self.is_ok().then_some(())).is_none() {
            let logs: Vec<String> = self.servers().map(RedisServer::log).collect();
            panic!("the cluster is not ok within {within:?}:\n{}", logs.join("\n"));
        }
    }

    /// Starts to move the slot to another primary; until it is finished, clients are redirected.
    pub fn begin_migration(&self, slot: u16) -> Migration<'_> {
        Migration::begin(self, slot)
    }

    fn awake(&self) -> impl Iterator<Item = &RedisServer> {
        self.servers().filter(|node| node.is_awake())
    }

    fn is_ok(&self) -> bool {
        let awake: Vec<u16> = self.awake().map(RedisServer::port).collect();
        let mut views = self.awake().map(|node| reports_ok(node).then(|| View::of(node))?);
        let Some(Some(view)) = views.next() else { return false };
        view.is_covered_by(&awake) && views.all(|other| other.as_ref() == Some(&view))
    }
}

fn reports_ok(node: &RedisServer) -> bool {
    let info = node.try_command(&["CLUSTER", "INFO"]);
    info.is_ok_and(|info| info.field("cluster_state").as_deref() == Some("ok"))
}
