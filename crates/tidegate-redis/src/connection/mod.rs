//! The way to Redis, whatever its deployment: one server, sentinels, or a cluster.
//!
//! Always   A call is for one slot, and is made once: again only where Redis has refused, and then once.

mod address;
mod breaker;
mod clock;
mod cluster;
mod connection_slot;
mod error;
mod examine;
mod latencies;
mod node;
mod reconnect;
mod sentinel;
mod settings;

pub use address::{Address, AddressError};
pub(crate) use clock::RedisClock;
pub use error::StoreError;
pub use examine::{Concern, Finding};
pub use latencies::Latencies;
pub(crate) use node::{Call, Deadline, Node};
pub use settings::Settings;

use address::{Deployment, Host};
use cluster::Cluster;
use error::Remedy;
use node::Outcome;
use sentinel::Primary;
use std::sync::Arc;
use std::time::Duration;
use tidegate::Span;
use tokio::time::Instant;

/// How long a slot that is being moved takes to be asked about again.
const MOMENT: Duration = Duration::from_millis(1);

/// Who owns none of so many slots owns none to speak of.
const EXAMINED_KEYS_MAX: u32 = 1 << 16;

/// The way to the servers.
#[derive(Debug)]
pub(crate) struct Link {
    topology: Topology,
    round_trips: Latencies,
}

#[derive(Debug)]
enum Topology {
    One(Arc<Node>),
    Many(Arc<Cluster>),
}

impl Link {
    /// Goes there. Whoever is not there yet is waited for, as long as `patience`.
    pub(crate) async fn open(address: &Address, settings: &Settings, patience: Duration) -> Self {
        let topology = if address.deployment == Deployment::Cluster {
            Topology::Many(Cluster::open(address.clone(), settings.clone(), patience).await)
        } else {
            let host = address.hosts.first().expect("an address has a host").clone();
            Topology::One(Node::new(Primary::new(address.clone(), host), settings.clone()))
        };
        let link = Self { topology, round_trips: Latencies::default() };
        for node in link.nodes() {
            node.wait(patience).await;
        }
        link
    }

    /// All primaries that are known.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        match &self.topology {
            Topology::One(node) => vec![Arc::clone(node)],
            Topology::Many(cluster) => cluster.nodes(),
        }
    }

    /// Whether keys must share a slot to be decided in one script.
    pub(crate) fn has_slots(&self) -> bool {
        matches!(self.topology, Topology::Many(_))
    }

    /// The slot of a key.
    pub(crate) fn slot(key: &[u8]) -> u16 {
        cluster::slot(key)
    }

    /// Whether who has this key is asked, now.
    pub(crate) fn is_up(&self, key: &[u8]) -> bool {
        match &self.topology {
            Topology::One(node) => node.is_up(),
            Topology::Many(cluster) => {
                cluster.owner(cluster::slot(key)).is_some_and(|owner| owner.is_up())
            }
        }
    }

    /// How long scripts took that were sent: until the answer, or until it was not waited for any more.
    pub(crate) fn round_trips(&self) -> &Latencies {
        &self.round_trips
    }

    /// Runs a script on whoever has its first key.
    pub(crate) async fn call(&self, call: &Call) -> Result<redis::Value, StoreError> {
        let began = Instant::now();
        let answer = self.call_owner(call).await;
        let is_unsent =
            matches!(answer, Err(StoreError::Down { .. } | StoreError::Overloaded { .. }));
        if !is_unsent {
            let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.round_trips.record(Span::from_micros(took_us), 1);
        }
        answer
    }

    async fn call_owner(&self, call: &Call) -> Result<redis::Value, StoreError> {
        match &self.topology {
            Topology::One(node) => match node.call(call, false).await {
                Outcome::Answer(value) => Ok(value),
                Outcome::Remedy(Remedy::AskAgain, _) => {
                    tokio::time::sleep(MOMENT).await;
                    settled(node.call(call, false).await)
                }
                outcome => settled(outcome),
            },
            Topology::Many(cluster) => call_slot(cluster, call).await,
        }
    }

    /// What is wrong with the primaries. `prefix` is what our keys begin with.
    pub(crate) async fn examine(&self, prefix: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        for node in self.nodes() {
            // In a cluster a node is asked about keys of its own.
            let key = |number| format!("{prefix}{{examine-{number}}}:").into_bytes();
            let is_its = |key: &Vec<u8>| match &self.topology {
                Topology::One(_) => true,
                Topology::Many(cluster) => {
                    let owner = cluster.owner(cluster::slot(key));
                    owner.is_some_and(|owner| Arc::ptr_eq(&owner, &node))
                }
            };
            if let Some(key) = (0..EXAMINED_KEYS_MAX).map(key).find(is_its) {
                findings.extend(examine::examine(&node, &key).await);
            }
        }
        if self.nodes().is_empty() {
            findings.push(Finding::unknown_cluster());
        }
        findings
    }

    /// How often primaries have been others than before, or other runs of them.
    pub(crate) fn changes(&self) -> u64 {
        match &self.topology {
            Topology::One(node) => node.changes(),
            Topology::Many(cluster) => cluster.changes(),
        }
    }
}

async fn call_slot(cluster: &Cluster, call: &Call) -> Result<redis::Value, StoreError> {
    let slot = cluster::slot(call.keys.first().map_or(&[][..], Vec::as_slice));
    let Some(owner) = cluster.owner(slot) else {
        cluster.doubt();
        let reason = "no node of the cluster is known to own it".to_owned();
        return Err(StoreError::Down { address: format!("slot {slot}"), reason });
    };
    match owner.call(call, false).await {
        Outcome::Answer(value) => Ok(value),
        Outcome::Remedy(Remedy::Moved { host, port }, _) => {
            let owner = cluster.moved(slot, &there(host, port, &owner));
            cluster.doubt();
            owner.wait(call.deadline.left()).await;
            settled(owner.call(call, false).await)
        }
        Outcome::Remedy(Remedy::Ask { host, port }, _) => {
            let next = cluster.node(&there(host, port, &owner));
            next.wait(call.deadline.left()).await;
            settled(next.call(call, true).await)
        }
        Outcome::Remedy(Remedy::AskAgain, _) => {
            tokio::time::sleep(MOMENT).await;
            settled(owner.call(call, false).await)
        }
        outcome => {
            // Whoever it was may not own it any more.
            cluster.doubt();
            settled(outcome)
        }
    }
}

fn there(name: String, port: u16, said_by: &Node) -> Host {
    if !name.is_empty() {
        return Host { name, port };
    }
    let said_by = said_by.address();
    let name = said_by.rsplit_once(':').map_or(said_by.as_str(), |(name, _)| name);
    Host { name: name.trim_matches(['[', ']']).to_owned(), port }
}

/// What there is, is the answer.
fn settled(outcome: Outcome) -> Result<redis::Value, StoreError> {
    match outcome {
        Outcome::Answer(value) => Ok(value),
        Outcome::Remedy(_, failure) | Outcome::Failure(failure) => Err(failure),
    }
}
