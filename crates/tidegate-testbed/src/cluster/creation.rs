//! How six servers become a cluster.
//!
//! Rejected `redis-cli --cluster create`: it does not know ports of the bus that are not 10 000 above the other.

use super::{Cluster, Node, SLOTS};
use crate::patience::{PATIENCE, eventually};
use crate::port::Port;
use crate::redis::{Builder, RedisServer};

const PRIMARIES: u16 = 3;
const NODES: usize = 6;

const OPTIONS: [(&str, &str); 4] = [
    ("cluster-enabled", "yes"),
    // A node that is silent for so long is down.
    ("cluster-node-timeout", "1500"),
    // A replica stands for election however long it has heard nothing: on a busy machine that may be long.
    ("cluster-replica-validity-factor", "0"),
    // Who follows whom is changed by the test only.
    ("cluster-allow-replica-migration", "no"),
];

pub(super) fn create(builder: &Builder) -> Cluster {
    let nodes: Vec<Node> = (0..NODES).map(|_| node(builder)).collect();
    meet(&nodes);
    let (primaries, replicas) = nodes.split_at(usize::from(PRIMARIES));
    for ((primary, replica), number) in primaries.iter().zip(replicas).zip(0..) {
        let range = [first_slot(number), first_slot(number + 1) - 1].map(|slot| slot.to_string());
        tell(&primary.server, &["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]]);
        tell(&replica.server, &["CLUSTER", "REPLICATE", &id(&primary.server)]);
    }
    eventually("every replica has its copy and is known", PATIENCE, || {
        replicas.iter().all(|replica| replica.server.has_copy())
            && nodes.iter().all(|node| knows_replicas(&node.server, replicas.len()))
    });
    let cluster = Cluster { nodes };
    cluster.wait_until_ok(PATIENCE);
    cluster
}

/// A node's name for life.
pub(super) fn id(server: &RedisServer) -> String {
    server.command(&["CLUSTER", "MYID"]).text()
}

/// A command that must be obeyed.
pub(super) fn tell(server: &RedisServer, words: &[&str]) {
    let reply = server.command(words);
    assert!(reply.is_ok(), "{}: {reply:?}", words.join(" "));
}

fn node(builder: &Builder) -> Node {
    let bus = Port::claim();
    let builder =
        builder.clone().before(&OPTIONS).option("cluster-port", &bus.number().to_string());
    Node { server: builder.start(), bus }
}

/// Introduces all to the first, and waits until they have heard of each other.
fn meet(nodes: &[Node]) {
    for (node, epoch) in nodes.iter().zip(1_u16..) {
        // Different from the start, or they would have to settle who is the elder.
        tell(&node.server, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch.to_string()]);
    }
    for Node { server, bus } in &nodes[1..] {
        let (port, bus) = (server.port().to_string(), bus.number().to_string());
        tell(&nodes[0].server, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    }
    eventually("every node knows all others", PATIENCE, || {
        nodes.iter().all(|node| links(&node.server) == nodes.len())
    });
}

/// How many nodes it knows by their names and is connected with, itself among them.
fn links(server: &RedisServer) -> usize {
    let nodes = server.command(&["CLUSTER", "NODES"]).text();
    let is_linked = |line: &&str| line.contains(" connected") && !line.contains("handshake");
    nodes.lines().filter(is_linked).count()
}

fn knows_replicas(server: &RedisServer, count: usize) -> bool {
    let nodes = server.command(&["CLUSTER", "NODES"]).text();
    nodes.lines().filter(|line| line.contains("slave")).count() == count
}

fn first_slot(primary: u16) -> u16 {
    // The last one takes what is left over.
    if primary == PRIMARIES { SLOTS } else { SLOTS / PRIMARIES * primary }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_given_to_somebody() {
        assert_eq!([0, 1, 2, 3].map(first_slot), [0, 5_461, 10_922, 16_384]);
    }
}
