//! The assignment of slots to primaries, as one node sees it.

use crate::redis::{RedisServer, Reply};

/// Number of slots of a cluster.
pub const SLOTS: u16 = 16_384;

/// The reply to `CLUSTER SLOTS`, without the replicas.
#[derive(PartialEq, Eq)]
pub(super) struct View(Vec<Run>);

/// A range of slots of one primary, including the last one.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    first: u16,
    last: u16,
    port: u16,
}

impl View {
    /// Asks a node; returns `None` if it does not answer.
    pub(super) fn of(node: &RedisServer) -> Option<Self> {
        Self::read(&node.try_command(&["CLUSTER", "SLOTS"]).ok()?)
    }

    fn read(slots: &Reply) -> Option<Self> {
        let run = |items: &[Reply]| match items {
            [first, last, primary, ..] => {
                let port = number(primary.items().get(1)?)?;
                Some(Run { first: number(first)?, last: number(last)?, port })
            }
            _ => None,
        };
        let runs: Option<Vec<Run>> = slots.items().iter().map(|item| run(item.items())).collect();
        // Nodes list them in different orders.
        let mut runs = runs?;
        runs.sort();
        Some(Self(runs))
    }

    pub(super) fn primary_of(&self, slot: u16) -> Option<u16> {
        let run = self.0.iter().find(|run| (run.first..=run.last).contains(&slot))?;
        Some(run.port)
    }

    /// Returns the first slot of another primary.
    pub(super) fn slot_not_of(&self, port: u16) -> Option<u16> {
        Some(self.0.iter().find(|run| run.port != port)?.first)
    }

    /// Returns whether every slot has one of these primaries.
    pub(super) fn is_covered_by(&self, ports: &[u16]) -> bool {
        let slots: u32 = self.0.iter().map(|run| u32::from(run.last - run.first) + 1).sum();
        slots == u32::from(SLOTS) && self.0.iter().all(|run| ports.contains(&run.port))
    }
}

fn number(reply: &Reply) -> Option<u16> {
    reply.text().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: i64, last: i64, port: i64) -> Reply {
        let node = vec![Reply::Bulk(b"127.0.0.1".to_vec()), Reply::Integer(port)];
        Reply::Array(vec![Reply::Integer(first), Reply::Integer(last), Reply::Array(node)])
    }

    #[test]
    fn a_view_knows_the_primary_of_a_slot() {
        let view =
            View::read(&Reply::Array(vec![run(8_192, 16_383, 2), run(0, 8_191, 1)])).unwrap();
        assert_eq!(
            [0, 8_191, 8_192, 16_383].map(|slot| view.primary_of(slot).unwrap()),
            [1, 1, 2, 2]
        );
        assert_eq!(view.slot_not_of(1), Some(8_192));
        assert!(view.is_covered_by(&[1, 2, 3]));
        assert!(!view.is_covered_by(&[1]), "2 is down");
    }

    #[test]
    fn a_slot_without_a_primary_is_not_covered() {
        let view = View::read(&Reply::Array(vec![run(0, 16_382, 1)])).unwrap();
        assert_eq!(view.primary_of(16_383), None);
        assert!(!view.is_covered_by(&[1]));
    }
}
