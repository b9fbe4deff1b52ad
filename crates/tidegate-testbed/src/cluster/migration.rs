//! A slot on its way from one primary to another, in halves, so that a test can look in between.
//!
//! While it is under way the old primary says ASK for keys that are gone, the new one says MOVED to who does not say
//! ASKING, and TRYAGAIN to who does and asks for several keys of which some are still missing.

use super::Cluster;
use super::creation::{id, tell};
use super::slots::View;
use crate::patience::PATIENCE;
use crate::redis::{RedisServer, Reply};

/// How long a key may be under way.
const MIGRATE_TIMEOUT_MS: &str = "5000";

/// Begun by [`Cluster::begin_migration`]; one that is dropped unfinished leaves the slot half-way.
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
        // In this order: whoever is sent on by the one must be let in by the other.
        migration.set_slot(to, &["IMPORTING", &id(from)]);
        migration.set_slot(from, &["MIGRATING", &id(to)]);
        migration
    }

    /// The slot that moves.
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// Who has the slot until the end.
    pub fn from(&self) -> &'a RedisServer {
        self.from
    }

    /// Who will have it.
    pub fn to(&self) -> &'a RedisServer {
        self.to
    }

    /// Moves one key, which may not be there.
    pub fn move_key(&self, key: &str) {
        let port = self.to.port().to_string();
        let words = ["MIGRATE", "127.0.0.1", &port, key, "0", MIGRATE_TIMEOUT_MS];
        let reply = self.from.command(&words);
        assert!(!matches!(reply, Reply::Error(_)), "{}: {reply:?}", words.join(" "));
    }

    /// Moves the keys that are left and gives the slot away; all nodes know of it when this returns.
    pub fn finish(self) {
        for key in self.keys() {
            self.move_key(&key);
        }
        let id = id(self.to);
        // The new one first: if the old one gave it up before, nobody would have it.
        for node in [self.to, self.from] {
            self.set_slot(node, &["NODE", &id]);
        }
        self.cluster.wait_until_ok(PATIENCE);
        let primary = self.cluster.primary_of_slot(self.slot);
        assert_eq!(primary.port(), self.to.port(), "somebody else has taken the slot");
    }

    /// All keys of the slot that are still with the old primary, and are text.
    fn keys(&self) -> Vec<String> {
        let count = self.from.command(&["CLUSTER", "COUNTKEYSINSLOT", &self.slot.to_string()]);
        let words = ["CLUSTER", "GETKEYSINSLOT", &self.slot.to_string(), &count.text()];
        self.from.command(&words).items().iter().map(Reply::text).collect()
    }

    fn set_slot(&self, node: &RedisServer, words: &[&str]) {
        let slot = self.slot.to_string();
        let command = ["CLUSTER", "SETSLOT", &slot];
        tell(node, &command.into_iter().chain(words.iter().copied()).collect::<Vec<_>>());
    }
}
