//! Sentinels replace a primary that is gone.

use std::time::Duration;
use tidegate_testbed::{Client, PATIENCE, RedisServer, Sentinels, eventually};

/// A second until it counts as gone, and an election; more only on a busy machine.
const FAILOVER: Duration = Duration::from_secs(30);

fn has_role(server: &RedisServer, role: &str) -> bool {
    // Sentinels disconnect the clients of a server that they turn into a replica, and this test may be one of them.
    let info = server.try_command(&["INFO", "replication"]);
    info.is_ok_and(|info| info.field("role").as_deref() == Some(role))
}

#[test]
fn a_killed_primary_is_replaced_and_comes_back_as_a_replica() {
    let sentinels = Sentinels::start();
    let count = sentinels.servers().iter().filter(|server| has_role(server, "slave")).count();
    assert_eq!(count, 2);
    assert!(sentinels.primary().command(&["SET", "k", "v"]).is_ok());
    assert_eq!(sentinels.primary().command(&["WAIT", "2", "20000"]).text(), "2");

    let old = sentinels.kill_primary();
    let new = sentinels.wait_for_new_primary(FAILOVER);
    assert_ne!(new.address(), old.address());
    assert_eq!(sentinels.primary().address(), new.address());
    assert_eq!(new.command(&["GET", "k"]).text(), "v");
    assert!(new.command(&["SET", "k", "w"]).is_ok());

    old.restart();
    eventually("it follows the new primary", PATIENCE, || has_role(old, "slave"));
}

#[test]
fn a_primary_that_is_paused_is_replaced_by_the_one_replica() {
    let sentinels = Sentinels::with_replicas(1);
    let old = sentinels.primary();
    old.pause();
    let new = sentinels.wait_for_new_primary(FAILOVER);
    assert_ne!(new.address(), old.address());
}

#[test]
fn sentinels_report_the_address_of_the_primary() {
    let sentinels = Sentinels::with_replicas(1);
    assert_eq!(sentinels.sentinel_addresses().len(), sentinels.sentinels().len());
    for address in sentinels.sentinel_addresses() {
        let mut client = Client::connect(address).unwrap();
        let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", sentinels.master_name()];
        let answer = client.command(&question).unwrap();
        assert_eq!(answer.items()[1].text(), sentinels.primary().port().to_string());
    }
}
