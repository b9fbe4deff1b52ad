//! A cluster replaces a primary that is gone, and moves slots.

use std::time::Duration;
use tidegate_testbed::{Client, Cluster, PATIENCE, RedisServer, Reply, SLOTS, eventually};

/// A second and a half until a node counts as gone, and an election; more only on a busy machine.
const FAILOVER: Duration = Duration::from_secs(30);

fn connect(server: &RedisServer) -> Client {
    Client::connect(server.address()).expect("it listens")
}

#[test]
fn every_slot_has_a_primary_and_other_nodes_redirect_to_it() {
    let cluster = Cluster::start();
    assert_eq!((cluster.addresses().len(), cluster.urls().len()), (6, 6));
    let slot = cluster.slot_of("k");
    let primary = cluster.primary_of_slot(slot);
    assert!(connect(primary).command(&["SET", "k", "v"]).unwrap().is_ok());
    for server in cluster.servers().filter(|server| server.port() != primary.port()) {
        let moved = connect(server).command(&["GET", "k"]).unwrap();
        assert_eq!(moved, Reply::Error(format!("MOVED {slot} {}", primary.address())));
    }
    let [first, last] = [0, SLOTS - 1].map(|slot| cluster.primary_of_slot(slot).port());
    assert_ne!(first, last);
}

#[test]
fn a_killed_primary_is_replaced_and_comes_back_as_a_replica() {
    let cluster = Cluster::start();
    let slot = cluster.slot_of("k");
    let primary = cluster.primary_of_slot(slot);
    primary.command(&["SET", "k", "v"]);
    assert_eq!(primary.command(&["WAIT", "1", "20000"]).text(), "1");

    let old = cluster.kill_primary_of_slot(slot);
    cluster.wait_until_ok(FAILOVER);
    let new = cluster.primary_of_slot(slot);
    assert_ne!(new.port(), old.port());
    assert_eq!(connect(new).command(&["GET", "k"]).unwrap().text(), "v");

    old.restart();
    eventually("it follows the new primary", PATIENCE, || {
        old.command(&["INFO", "replication"]).field("role").as_deref() == Some("slave")
    });
    cluster.wait_until_ok(PATIENCE);
}

#[test]
fn a_slot_that_is_being_moved_redirects_clients() {
    let cluster = Cluster::start();
    let slot = cluster.slot_of("{t}a");
    let old = cluster.primary_of_slot(slot);
    for key in ["{t}a", "{t}b"] {
        assert!(old.command(&["SET", key, "v"]).is_ok());
    }

    let migration = cluster.begin_migration(slot);
    let new = migration.to();
    assert_eq!((migration.slot(), migration.from().port()), (slot, old.port()));
    let asked = Reply::Error(format!("ASK {slot} {}", new.address()));
    let moved = |to: &RedisServer| Reply::Error(format!("MOVED {slot} {}", to.address()));
    assert_eq!(connect(old).command(&["GET", "{t}a"]).unwrap().text(), "v");
    migration.move_key("{t}a");
    assert_eq!(connect(old).command(&["GET", "{t}a"]).unwrap(), asked);
    assert_eq!(connect(new).command(&["GET", "{t}a"]).unwrap(), moved(old));
    let mut asking = connect(new);
    asking.command(&["ASKING"]).unwrap();
    assert_eq!(asking.command(&["GET", "{t}a"]).unwrap().text(), "v");
    asking.command(&["ASKING"]).unwrap();
    let both = asking.command(&["MGET", "{t}a", "{t}b"]).unwrap();
    assert!(both.text().starts_with("TRYAGAIN"), "{both:?}");

    migration.finish();
    assert_eq!(connect(old).command(&["GET", "{t}a"]).unwrap(), moved(new));
    assert_eq!(new.command(&["GET", "{t}b"]).text(), "v");
}

#[test]
fn a_cluster_has_the_options_of_the_test() {
    let builder = RedisServer::builder().option("cluster-node-timeout", "2000");
    let cluster = Cluster::start_as(&builder);
    for server in cluster.servers() {
        let timeout = server.command(&["CONFIG", "GET", "cluster-node-timeout"]);
        assert_eq!(timeout.field("cluster-node-timeout").unwrap(), "2000");
    }
}
