//! The servers of a store, and which of them runs a script.

use super::address::{Address, Deployment, Host};
use super::cluster::{self, Cluster};
use super::error::{RedisStoreError, Remedy};
use super::examine::{self, ServerProblem};
use super::latencies::Latencies;
use super::node::{Call, CallResult, Node};
use super::reconnect;
use super::sentinel::Primary;
use super::settings::Settings;
use std::sync::Arc;
use std::time::Duration;
use tidegate::Span;
use tokio::time::Instant;

/// The pause before a script is sent again while its slot is being moved.
const TRY_AGAIN_PAUSE: Duration = Duration::from_millis(1);

/// How many keys are tried to find one in a slot of a given node. A node that owns none of them owns almost no slot.
const EXAMINED_KEYS_MAX: u32 = 1 << 16;

/// The servers of a store.
#[derive(Debug)]
pub(crate) struct Servers {
    topology: Topology,
    round_trips: Latencies,
}

#[derive(Debug)]
enum Topology {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Servers {
    /// Connects, and waits at most `wait_max` for servers that are not up yet.
    pub(crate) async fn open(address: &Address, settings: &Settings, wait_max: Duration) -> Self {
        let topology = if address.deployment == Deployment::Cluster {
            Topology::Cluster(Cluster::open(address.clone(), settings.clone(), wait_max).await)
        } else {
            let host = address.hosts.first().expect("an address has a host").clone();
            let primary = Primary::new(address.clone(), host);
            Topology::One(reconnect::start(primary, settings.clone()))
        };
        let servers = Self { topology, round_trips: Latencies::default() };
        for node in servers.nodes() {
            node.wait(wait_max).await;
        }
        servers
    }

    /// Returns all known primaries.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        match &self.topology {
            Topology::One(node) => vec![Arc::clone(node)],
            Topology::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// Returns whether keys must be in one slot to be decided in one script.
    pub(crate) fn has_slots(&self) -> bool {
        matches!(self.topology, Topology::Cluster(_))
    }

    /// Returns the cluster slot of a key.
    pub(crate) fn slot(key: &[u8]) -> u16 {
        cluster::slot(key)
    }

    /// Returns whether requests about this key are sent to Redis now.
    pub(crate) fn is_up(&self, key: &[u8]) -> bool {
        match &self.topology {
            Topology::One(node) => node.is_up(),
            Topology::Cluster(cluster) => {
                cluster.owner(cluster::slot(key)).is_some_and(|owner| owner.is_up())
            }
        }
    }

    /// Returns the latencies of scripts that were sent, until the answer or the deadline.
    pub(crate) fn round_trips(&self) -> &Latencies {
        &self.round_trips
    }

    /// Runs a script on the server that owns its first key.
    pub(crate) async fn call(&self, call: &Call) -> Result<redis::Value, RedisStoreError> {
        let began = Instant::now();
        let answer = self.call_owner(call).await;
        let is_unsent = matches!(
            answer,
            Err(RedisStoreError::Down { .. } | RedisStoreError::Overloaded { .. })
        );
        if !is_unsent {
            let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.round_trips.record(Span::from_micros(took_us), 1);
        }
        answer
    }

    async fn call_owner(&self, call: &Call) -> Result<redis::Value, RedisStoreError> {
        match &self.topology {
            Topology::One(node) => match node.call(call, false).await {
                CallResult::Refused(Remedy::TryAgain, _) => {
                    tokio::time::sleep(TRY_AGAIN_PAUSE).await;
                    node.call(call, false).await.into()
                }
                result => result.into(),
            },
            Topology::Cluster(cluster) => call_slot(cluster, call).await,
        }
    }

    /// Returns the problems of the primaries. `prefix` is the prefix of our keys.
    pub(crate) async fn examine(&self, prefix: &str) -> Vec<ServerProblem> {
        let mut problems = Vec::new();
        for node in self.nodes() {
            // A cluster node can only be examined with keys of its own slots.
            let key = |number| format!("{prefix}{{examine-{number}}}:").into_bytes();
            let owns = |key: &Vec<u8>| match &self.topology {
                Topology::One(_) => true,
                Topology::Cluster(cluster) => {
                    let owner = cluster.owner(cluster::slot(key));
                    owner.is_some_and(|owner| Arc::ptr_eq(&owner, &node))
                }
            };
            if let Some(key) = (0..EXAMINED_KEYS_MAX).map(key).find(owns) {
                problems.extend(examine::examine(&node, &key).await);
            }
        }
        if self.nodes().is_empty() {
            problems.push(ServerProblem::unknown_cluster());
        }
        problems
    }

    /// Returns how often a primary was replaced or restarted.
    pub(crate) fn changes(&self) -> u64 {
        match &self.topology {
            Topology::One(node) => node.changes(),
            Topology::Cluster(cluster) => cluster.changes(),
        }
    }
}

async fn call_slot(cluster: &Cluster, call: &Call) -> Result<redis::Value, RedisStoreError> {
    let slot = cluster::slot(call.keys.first().map_or(&[][..], Vec::as_slice));
    let Some(owner) = cluster.owner(slot) else {
        cluster.refresh();
        let reason = "no node of the cluster is known to own it".to_owned();
        return Err(RedisStoreError::Down { address: format!("slot {slot}"), reason });
    };
    match owner.call(call, false).await {
        CallResult::Refused(Remedy::Moved { host, port }, _) => {
            let owner = cluster.moved(slot, &redirected(host, port, &owner));
            cluster.refresh();
            owner.wait(call.deadline.time_left()).await;
            owner.call(call, false).await.into()
        }
        CallResult::Refused(Remedy::Ask { host, port }, _) => {
            let next = cluster.node(&redirected(host, port, &owner));
            next.wait(call.deadline.time_left()).await;
            next.call(call, true).await.into()
        }
        CallResult::Refused(Remedy::TryAgain, _) => {
            tokio::time::sleep(TRY_AGAIN_PAUSE).await;
            owner.call(call, false).await.into()
        }
        CallResult::Answer(value) => Ok(value),
        result => {
            // The slot may have another owner by now.
            cluster.refresh();
            result.into()
        }
    }
}

/// Returns the host of a redirection. An empty name means the node that redirects.
fn redirected(name: String, port: u16, by: &Node) -> Host {
    if !name.is_empty() {
        return Host { name, port };
    }
    let by = by.address();
    let name = by.rsplit_once(':').map_or(by.as_str(), |(name, _)| name);
    Host { name: name.trim_matches(['[', ']']).to_owned(), port }
}
