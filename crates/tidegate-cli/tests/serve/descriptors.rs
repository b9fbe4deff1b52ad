//! T45: no more descriptors, and as many as there can be.

use crate::daemon::{Daemon, Directory, PATIENCE, Peer, eventually};
use std::time::Duration;

#[test]
fn it_takes_all_descriptors_it_may_have_and_says_if_they_are_few() {
    let directory = Directory::new();
    let config = directory.write("t.toml", "[server.caps]\nfirst_byte = \"60s\"\n");
    let daemon = Daemon::start("ulimit -S -n 64; ulimit -H -n 1024;", &config, &[]);
    let mut peers: Vec<Peer> = (0..120).map(|_| daemon.connect()).collect();
    for peer in &mut peers {
        assert_eq!(peer.ask("PING"), "+PONG");
    }
    assert!(daemon.says("there are 1024 descriptors for 10000 connections"), "it says so");
    assert!(!daemon.says("cannot accept"), "there are enough for these");
}

#[test]
fn t45_without_descriptors_it_waits_says_why_and_recovers() {
    let directory = Directory::new();
    let config = directory.write("t.toml", "[server.caps]\nfirst_byte = \"60s\"\n");
    let daemon = Daemon::start("ulimit -n 64;", &config, &[]);
    let mut peers: Vec<Peer> = (0..120).map(|_| daemon.connect()).collect();
    eventually("it says why", PATIENCE, || {
        daemon.says("cannot accept on RESP now: Too many open files")
    });
    assert_eq!(peers[0].ask("PING"), "+PONG", "who is in is served");
    drop(peers);
    let second = Duration::from_secs(1);
    eventually("it accepts again", second, || daemon.connect().ask("PING") == "+PONG");
    daemon.signal("TERM");
    assert!(daemon.end().success());
}
