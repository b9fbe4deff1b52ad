//! Two servers with one Redis share their limits, and decide locally while Redis is down.

use crate::daemon::{Daemon, Directory, PATIENCE, Peer, eventually};
use tidegate_testbed::RedisServer;

/// Burst of each limit. Without Redis, each of the two servers admits half of it.
const BURST: u64 = 10;

fn configured(directory: &Directory, redis: &RedisServer) -> std::path::PathBuf {
    let url = redis.url();
    // Long deadlines: on a busy machine, no decision may be made without Redis while it runs.
    let store = format!("[store]\nurl = \"{url}\"\ndeadline = \"5s\"\nnodes = 2\n");
    let limit = |name: &str, on_error: &str| {
        format!("[limits.{name}]\nrule = \"1/day burst {BURST}\"\non_error = \"{on_error}\"\n")
    };
    let limits = [limit("slow", "local"), limit("open", "allow"), limit("shut", "deny")].concat();
    directory.write("t.toml", &format!("{store}{limits}"))
}

/// Sends the command to the two servers in turns, and returns how many requests they allow.
fn allowed(peers: &mut [Peer; 2], line: &str, times: u64) -> u64 {
    let mut turns = (0..times).map(|turn| usize::from(turn % 2 == 1));
    turns.by_ref().map(|turn| u64::from(peers[turn].five(line).0)).sum()
}

/// Returns whether the server uses Redis. Only Redis answers a peek, so it is an error otherwise.
fn is_shared(peer: &mut Peer) -> bool {
    if peer.ask("TIDE.PEEK slow unused COST 0") != "*5" {
        return false;
    }
    (0..5).for_each(|_| assert!(peer.line().starts_with(':')));
    true
}

#[test]
fn two_servers_share_limits_and_decide_locally_while_redis_is_down() {
    let (directory, redis) = (Directory::new(), RedisServer::start());
    let config = configured(&directory, &redis);
    let daemons = [Daemon::start("", &config, &[]), Daemon::start("", &config, &[])];
    let mut peers = daemons.each_ref().map(Daemon::connect);
    assert_eq!(
        allowed(&mut peers, "TIDE.CHECK slow alice", 3 * BURST),
        BURST,
        "both servers together"
    );

    redis.kill();
    let is_local = |peer: &mut Peer| !is_shared(peer);
    eventually("both servers notice the outage", PATIENCE, || peers.iter_mut().all(is_local));
    let without = |peers: &mut [Peer; 2], limit: &str| {
        allowed(peers, &format!("TIDE.CHECK {limit} bob"), 3 * BURST)
    };
    assert_eq!(without(&mut peers, "slow"), BURST, "each server admits its share");
    assert_eq!(without(&mut peers, "open"), 3 * BURST);
    assert_eq!(without(&mut peers, "shut"), 0);
    assert_eq!(peers[0].ask("CL.THROTTLE bob 0 1 86400"), "*5");
    (0..5).for_each(|_| assert!(peers[0].line().starts_with(':')));
    let says = |daemon: &Daemon| daemon.has_logged("decided without Redis");
    eventually("both servers log it", PATIENCE, || daemons.iter().all(says));

    redis.restart();
    eventually("both servers use Redis again", PATIENCE, || peers.iter_mut().all(is_shared));
    assert_eq!(
        allowed(&mut peers, "TIDE.CHECK slow carol", 3 * BURST),
        BURST,
        "both servers together again"
    );
    for daemon in daemons {
        daemon.signal("TERM");
        assert!(daemon.end().success());
    }
}

#[test]
fn a_rule_set_on_one_server_holds_for_both() {
    let (directory, redis) = (Directory::new(), RedisServer::start());
    let config = configured(&directory, &redis);
    let daemons = [Daemon::start("", &config, &[]), Daemon::start("", &config, &[])];
    let mut peers = daemons.each_ref().map(Daemon::connect);
    assert_eq!(allowed(&mut peers, "TIDE.CHECK slow alice", BURST), BURST);
    let text = std::fs::read_to_string(&config).expect("the file was written");
    directory.write("t.toml", &text.replace(&format!("burst {BURST}"), "burst 20"));
    daemons[0].signal("HUP");
    eventually("the first server reloads", PATIENCE, || {
        daemons[0].has_logged("reloaded: 3 limits")
    });
    let limit = |peer: &mut Peer| {
        assert_eq!(peer.ask("TIDE.PEEK slow dave COST 0"), "*5");
        let lines: Vec<String> = (0..5).map(|_| peer.line()).collect();
        lines[1] == ":20"
    };
    eventually("the first server uses the new rule", PATIENCE, || limit(&mut peers[0]));
    assert!(peers[0].five("TIDE.CHECK slow dave").0);
    assert!(limit(&mut peers[1]), "the second server uses the new rule when it reads the key");

    directory.write("t.toml", &text.replace("nodes = 2", "nodes = 3"));
    daemons[0].signal("HUP");
    eventually("the first server reports that a restart is needed", PATIENCE, || {
        daemons[0].has_logged("[store] has changed, which needs a restart")
    });
}

#[test]
fn a_server_starts_without_its_store_and_connects_later() {
    let (directory, redis) = (Directory::new(), RedisServer::start());
    let config = configured(&directory, &redis);
    redis.kill();
    let daemon = Daemon::start("", &config, &[]);
    let mut peer = daemon.connect();
    assert!(peer.five("TIDE.CHECK slow alice").0, "the server decides by its share");
    assert!(!peer.five("TIDE.CHECK shut alice").0);
    assert!(daemon.has_logged("does not answer"));
    redis.restart();
    eventually("the server uses Redis", PATIENCE, || is_shared(&mut peer));
    assert!(peer.five("TIDE.CHECK shut alice").0);
}
