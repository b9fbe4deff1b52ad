//! T45: no more descriptors.

use crate::daemon::{Daemon, Directory, PATIENCE, Peer, eventually};
use std::time::Duration;

#[test]
fn t45_without_descriptors_it_waits_says_why_and_recovers() {
    let directory = Directory::new();
    let config = directory.write("t.toml", "[server.caps]\nfirst_byte = \"60s\"\n");
    let daemon = Daemon::start("ulimit -n 64;", &config, &[]);
    let mut peers: Vec<Peer> = (0..120).map(|_| daemon.connect()).collect();
    eventually("it says why", PATIENCE, || {
        daemon.says("cannot accept on RESP now: Too many open files")
    });
    assert_eq!(peers[0].ask("PING").as_deref(), Some("+PONG"), "who is in is served");
    drop(peers);
    let second = Duration::from_secs(1);
    eventually("it accepts again", second, || {
        daemon.connect().ask("PING").as_deref() == Some("+PONG")
    });
    daemon.signal("TERM");
    assert!(daemon.end().success());
}
