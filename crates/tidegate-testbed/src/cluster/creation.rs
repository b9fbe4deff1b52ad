//! Makes a cluster of six servers.
//!
//! Rejected `redis-cli --cluster create`: it requires that the port of the bus is 10 000 above the other port.

use super::{Cluster, Node, SLOTS};
use crate::port::Port;
use crate::redis::{Builder, RedisServer};
use crate::wait::{PATIENCE, eventually};

const PRIMARIES: u16 = 3;
const NODES: usize = 6;

const OPTIONS: [(&str, &str); 4] = [
    ("cluster-enabled", "yes"),
    // Time without a reply after which a node counts as down.
    ("cluster-node-timeout", "1500"),
    // A replica can be elected however old its data is: on a busy machine it may be old.
    ("cluster-replica-validity-factor", "0"),
    // Only the test changes which replica follows which primary.
    ("cluster-allow-replica-migration", "no"),
];

pub(super) fn create(builder: &Builder) -> Cluster {
    let nodes: Vec<Node> = (0..NODES).map(|_| node(builder)).collect();
    meet(&nodes);
    let (primaries, replicas) = nodes.split_at(usize::from(PRIMARIES));
    for ((primary, replica), number) in primaries.iter().zip(replicas).zip(0..) {
        let range = [first_slot(number), first_slot(number + 1) - 1].map(|slot| slot.to_string());
        command_ok(&primary.server, &["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]]);
        command_ok(&replica.server, &["CLUSTER", "REPLICATE", &id(&primary.server)]);
    }
    eventually("every replica has its copy, and all nodes know it", PATIENCE, || {
        replicas.iter().all(|replica| replica.server.has_copy())
            && nodes.iter().all(|node| knows_replicas(&node.server, replicas.len()))
    });
    let cluster = Cluster { nodes };
    cluster.wait_until_ok(PATIENCE);
    cluster
}

/// Returns the permanent id of a node.
pub(super) fn id(server: &RedisServer) -> String {
    server.command(&["CLUSTER", "MYID"]).text()
}

/// Sends a command, and panics unless the reply is OK.
pub(super) fn command_ok(server: &RedisServer, words: &[&str]) {
    let reply = server.command(words);
    assert!(reply.is_ok(), "{}: {reply:?}", words.join(" "));
}

fn node(builder: &Builder) -> Node {
    let bus = Port::claim();
    let builder =
        builder.clone().before(&OPTIONS).option("cluster-port", &bus.number().to_string());
    Node { server: builder.start(), bus }
}

/// Introduces all nodes to the first, and waits until they know each other.
fn meet(nodes: &[Node]) {
    for (node, epoch) in nodes.iter().zip(1_u16..) {
        // Epochs differ from the start; otherwise the nodes would have to resolve a conflict first.
        command_ok(&node.server, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch.to_string()]);
    }
    for Node { server, bus } in &nodes[1..] {
        let (port, bus) = (server.port().to_string(), bus.number().to_string());
        command_ok(&nodes[0].server, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    }
    eventually("every node knows all others", PATIENCE, || {
        nodes.iter().all(|node| links(&node.server) == nodes.len())
    });
}

/// Returns how many nodes, including itself, a node knows and is connected with.
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
    // The last primary gets the remainder.
    if primary == PRIMARIES { SLOTS } else { SLOTS / PRIMARIES * primary }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_assigned_to_a_primary() {
        assert_eq!([0, 1, 2, 3].map(first_slot), [0, 5_461, 10_922, 16_384]);
    }
}
