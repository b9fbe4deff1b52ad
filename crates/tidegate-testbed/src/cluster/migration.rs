//! Migrates a slot from one primary to another in steps, so that a test can act in between.
//!
//! During the migration, the old primary replies ASK for keys that have moved. The new primary replies MOVED to a client
//! that does not send ASKING, and TRYAGAIN to one that does and asks for several keys of which some are missing.

use super::Cluster;
use super::creation::{command_ok, id};
use super::slots::View;
use crate::redis::{RedisServer, Reply};
use crate::wait::PATIENCE;

/// Time limit for moving a key.
const MIGRATE_TIMEOUT_MS: &str = "5000";

/// A migration, started by [`Cluster::begin_migration`]. If it is dropped before it is finished, the slot stays half-way.
#[must_use = "the slot stays half-way until `finish`"]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: &'a RedisServer,
    to: &'a RedisServer,
}

impl<'a> Migration<'a> {
    pub(super) fn begin(cluster: &'a Cluster, slot: u16) -> Self {
        let from = cluster.primary_of_slot(slot);
        let elsewhere = View::of(from).and_then(|view| view.slot_not_of(from.port()));
        let to = cluster.primary_of_slot(elsewhere.expect("a cluster has several primaries"));
        let migration = Self { cluster, slot, from, to };
        // In this order: a client that one primary redirects must be accepted by the other.
        migration.set_slot(to, &["IMPORTING", &id(from)]);
        migration.set_slot(from, &["MIGRATING", &id(to)]);
        migration
    }

    /// Returns the slot.
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// Returns the primary that has the slot until the migration is finished.
    pub fn from(&self) -> &'a RedisServer {
        self.from
    }

    /// Returns the primary that gets the slot.
    pub fn to(&self) -> &'a RedisServer {
        self.to
    }

    /// Moves one key, which need not exist.
    pub fn move_key(&self, key: &str) {
        let port = self.to.port().to_string();
        let words = ["MIGRATE", "127.0.0.1", &port, key, "0", MIGRATE_TIMEOUT_MS];
        let reply = self.from.command(&words);
        assert!(!matches!(reply, Reply::Error(_)), "{}: {reply:?}", words.join(" "));
    }

    /// Moves the remaining keys and assigns the slot; returns when all nodes know of it.
    pub fn finish(self) {
        for key in self.keys() {
            self.move_key(&key);
        }
        let id = id(self.to);
        // The new primary first: otherwise the slot would have no owner for a moment.
        for node in [self.to, self.from] {
            self.set_slot(node, &["NODE", &id]);
        }
        self.cluster.wait_until_ok(PATIENCE);
        let primary = self.cluster.primary_of_slot(self.slot);
        assert_eq!(primary.port(), self.to.port(), "another node has the slot");
    }

    /// Returns the keys of the slot that the old primary still has and that are text.
    fn keys(&self) -> Vec<String> {
        let count = self.from.command(&["CLUSTER", "COUNTKEYSINSLOT", &self.slot.to_string()]);
        let words = ["CLUSTER", "GETKEYSINSLOT", &self.slot.to_string(), &count.text()];
        self.from.command(&words).items().iter().map(Reply::text).collect()
    }

    fn set_slot(&self, node: &RedisServer, words: &[&str]) {
        let slot = self.slot.to_string();
        let command = ["CLUSTER", "SETSLOT", &slot];
        command_ok(node, &command.into_iter().chain(words.iter().copied()).collect::<Vec<_>>());
    }
}
