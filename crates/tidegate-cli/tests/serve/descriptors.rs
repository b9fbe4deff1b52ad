//! T45: few file descriptors, and none left.

use crate::daemon::{Daemon, Directory, PATIENCE, Peer, eventually};
use std::time::Duration;

#[test]
fn the_server_raises_its_descriptor_limit_and_warns_if_it_is_low() {
    let directory = Directory::new();
    let config = directory.write("t.toml", "[server.caps]\nfirst_byte = \"60s\"\n");
    let daemon = Daemon::start("ulimit -S -n 64; ulimit -H -n 1024;", &config, &[]);
    let mut peers: Vec<Peer> = (0..120).map(|_| daemon.connect()).collect();
    for peer in &mut peers {
        assert_eq!(peer.ask("PING"), "+PONG");
    }
    let says = "there are 1024 descriptors for 10000 connections, so there will be ";
    assert!(daemon.has_logged(says), "the server warns");
    assert!(!daemon.has_logged("cannot accept"), "the descriptors suffice for these connections");
}

#[test]
fn with_few_descriptors_connections_are_capped_and_snapshots_still_work() {
    let directory = Directory::new();
    let text = "[server.caps]\nfirst_byte = \"60s\"\n[server.snapshot]\npath = \"state\"\nevery = \"100ms\"\n\
                [limits.slow]\nrule = \"5/day\"\n";
    let config = directory.write("t.toml", text);
    let daemon = Daemon::start_with_admin("ulimit -n 64;", &config);
    let mut peers: Vec<Peer> = (0..120).map(|_| daemon.connect()).collect();
    let answers: Vec<String> = peers.iter_mut().map(|peer| peer.ask("PING")).collect();
    let served = answers.iter().filter(|answer| *answer == "+PONG").count();
    assert!((8..40).contains(&served), "{served}");
    eventually("the server logs the lower cap", PATIENCE, || {
        daemon.has_logged("so there will be 16 at most")
    });
    assert!(!daemon.has_logged("cannot accept"), "{}", daemon.log());
    let known = answers.iter().position(|answer| answer == "+PONG").expect("some are served");
    assert_eq!(peers[known].five("TIDE.CHECK slow key"), (true, 4));
    let live = daemon.get("admin", "/livez");
    assert!(live.starts_with("HTTP/1.0 200 ") && live.ends_with("\r\n\r\nok\n"), "{live}");
    assert_eq!(peers[known].ask("PING"), "+PONG", "the others are still connected");
    let is_saved = || std::fs::metadata(directory.0.join("state")).is_ok_and(|file| file.len() > 0);
    eventually("the server writes a snapshot", PATIENCE, is_saved);
    // The next snapshot is sure to contain the request above.
    std::fs::remove_file(directory.0.join("state")).expect("the snapshot exists");
    eventually("the server writes another snapshot", PATIENCE, is_saved);
    daemon.kill();
    let daemon = Daemon::start("", &config, &[]);
    assert_eq!(daemon.connect().five("TIDE.PEEK slow key COST 0"), (true, 4));
}

#[test]
fn without_descriptors_the_server_waits_logs_and_recovers() {
    let directory = Directory::new();
    let config = directory.write("t.toml", "[server.caps]\nfirst_byte = \"60s\"\n");
    let daemon = Daemon::start("", &config, &[]);
    // The server checks at the start that there are enough descriptors; the limit is lowered afterwards.
    daemon.limit_descriptors(40);
    let mut peers: Vec<Peer> = (0..120).map(|_| daemon.connect()).collect();
    eventually("the server logs the reason", PATIENCE, || {
        daemon.has_logged("cannot accept RESP connections at present: Too many open files")
    });
    assert_eq!(peers[0].ask("PING"), "+PONG", "connections that were accepted are served");
    drop(peers);
    let second = Duration::from_secs(1);
    eventually("the server accepts connections again", second, || {
        daemon.connect().ask("PING") == "+PONG"
    });
    daemon.signal("TERM");
    assert!(daemon.end().success());
}
