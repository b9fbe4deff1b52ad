//! T40: reloads under load. T57: a hostile configuration file.

use crate::harness::{
    Directory, Peer, array, assert_grew_less, config, exclusive, rss_bytes, run, run_exclusive,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidegate::snapshot::Snapshot;
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{ListenAddr, load};
use tidegate_server::server::Server;

const RELOADS: u64 = 10_000;
/// Maximum time to reject a file. The target is one second; other processes share the machine.
const BOMB_TIME: Duration = Duration::from_secs(5);

/// Returns a file with the limit that the clients use, and 0 to 2 other limits, depending on the version.
fn text(version: u64) -> String {
    let other = |number| format!("[limits.other-{number}]\nrule = \"{}/s\"\n", number + 1);
    let others = (0..version % 3).map(other).collect::<Vec<_>>().concat();
    format!("{others}[limits.kept]\nrule = \"100000000/day fixed\"\n")
}

// T40
#[test]
fn ten_thousand_reloads_lose_no_connection_and_no_count() {
    let guard = exclusive();
    let directory = Directory::new();
    let file = directory.write("t.toml", &text(0));
    let limits = load(&file).expect("the file is valid").limits;
    let config = tidegate_server::config::Config { limits, ..config() };
    let server = Server::new(config, Some(file), ServerClock::system(), Snapshot::default());
    let running = run_exclusive(guard, server);
    let (is_over, charged) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut before = 0;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut peer = Peer::resp(&running);
                while !is_over.load(Ordering::Relaxed) {
                    peer.send(array(&[b"TIDE.CHECK", b"kept", b"key"]).repeat(16));
                    for _ in 0..16 {
                        assert_eq!((peer.line().as_str(), peer.line().as_str()), ("*5", ":1"));
                        (0..4).for_each(|_| assert!(peer.line().starts_with(':')));
                    }
                    charged.fetch_add(16, Ordering::Relaxed);
                }
            });
        }
        for number in 0..RELOADS {
            if number % 50 == 0 {
                directory.write("t.toml", &text(number / 50));
            }
            running.server.reload().expect("the file is valid");
            if number == RELOADS / 10 {
                before = rss_bytes();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_grew_less(before, 16 << 20);
    let limits = running.server.engine.limits();
    let kept = limits.get("kept").expect("the limit exists");
    assert_eq!(kept.counters().stats().allowed, charged.load(Ordering::Relaxed));
    assert_eq!(running.server.status.reloads.load(Ordering::Relaxed), RELOADS);
    let mut peer = Peer::resp(&running);
    peer.send(array(&[b"TIDE.PEEK", b"kept", b"key", b"COST", b"0"]));
    let reply: Vec<String> = (0..6).map(|_| peer.line()).collect();
    assert_eq!(reply[3], format!(":{}", 100_000_000 - charged.load(Ordering::Relaxed)));
    running.stop().unwrap();
}

// T57: some of the invalid files take a naive parser long. They are small enough to be read, except the last.
#[test]
fn an_invalid_file_changes_nothing_and_is_reported() {
    let directory = Directory::new();
    let file = directory.write("t.toml", "[limits.kept]\nrule = \"1/h\"\n");
    let limits = load(&file).expect("the file is valid").limits;
    let config = tidegate_server::config::Config { limits, ..config() };
    let server =
        Server::new(config, Some(file.clone()), ServerClock::system(), Snapshot::default());
    let running = run(server);
    let mut peer = Peer::resp(&running);
    let mut check = |allowed: &str| {
        peer.send(array(&[b"TIDE.CHECK", b"kept", b"key"]));
        let reply: Vec<String> = (0..6).map(|_| peer.line()).collect();
        assert_eq!(reply[1], allowed, "{reply:?}");
    };
    check(":1");
    let status = &running.server.status;
    let bad = [
        "[limits.kept]\nrule = \"1/fortnight\"\n",
        "[limits",
        "\0",
        &format!("a = {}", "[".repeat(500_000)),
        &format!("{} = 1", vec!["a"; 400_000].join(".")),
        &format!("[limits.kept]\nrule = \"{}/s\"", "1".repeat(1_000_000)),
        &"a".repeat(100 << 20),
    ];
    for (number, bad) in bad.iter().enumerate() {
        directory.write("t.toml", bad);
        let start = Instant::now();
        let errors = running.server.reload().expect_err("the file is invalid").to_string();
        assert!(start.elapsed() < BOMB_TIME, "{:?}: {errors:.200}", start.elapsed());
        assert!(errors.contains("t.toml"), "{errors:.200}");
        assert!(status.is_config_stale.load(Ordering::Relaxed));
        assert_eq!(status.failed_reloads.load(Ordering::Relaxed), number as u64 + 1);
        check(":0");
    }
    std::fs::remove_file(&file).unwrap();
    assert!(running.server.reload().is_err(), "the file is missing");
    check(":0");
    directory.write("t.toml", "[limits.kept]\nrule = \"2/h\"\n");
    running.server.reload().expect("the file is valid again");
    assert!(!status.is_config_stale.load(Ordering::Relaxed));
    running.stop().unwrap();
}

#[test]
fn a_reload_turns_ad_hoc_rules_off_and_on_for_open_connections() {
    let directory = Directory::new();
    let text =
        |is_on: bool| format!("[server]\nad_hoc_rules = {is_on}\n[limits.kept]\nrule = \"9/h\"\n");
    let file = directory.write("t.toml", &text(true));
    let limits = load(&file).expect("the file is valid").limits;
    let config = tidegate_server::config::Config { limits, ..config() };
    let server = Server::new(config, Some(file), ServerClock::system(), Snapshot::default());
    let running = run(server);
    let mut peer = Peer::resp(&running);
    for is_on in [true, false, true] {
        directory.write("t.toml", &text(is_on));
        running.server.reload().expect("the file is valid");
        // The server already has the first rule in its second and third turn.
        for rule in ["9/week", &format!("{}/week", 10 + usize::from(is_on))] {
            peer.send(array(&[b"TIDE.CHECK", rule.as_bytes(), b"key"]));
            let first = peer.line();
            if is_on {
                assert_eq!((first.as_str(), peer.line().as_str()), ("*5", ":1"), "{rule}");
                (0..4).for_each(|_| assert!(peer.line().starts_with(':')));
            } else {
                assert!(first.starts_with(&format!("-ERR no limit is named `{rule}`")), "{first}");
                assert!(first.contains("`ad_hoc_rules = false`"), "{first}");
            }
        }
        peer.send(array(&[b"TIDE.CHECK", b"kept", b"key"]));
        assert_eq!((peer.line().as_str(), peer.line().as_str()), ("*5", ":1"));
        (0..4).for_each(|_| assert!(peer.line().starts_with(':')));
    }
    running.stop().unwrap();
}

#[test]
fn settings_that_need_a_restart_are_reported() {
    let directory = Directory::new();
    let file = directory.write("t.toml", "[server]\nhttp = \"off\"\n");
    let mut config = load(&file).expect("the file is valid");
    config.command_line.http = Some(ListenAddr::At(([127, 0, 0, 1], 8080).into()));
    config.command_line.apply(&mut config.server);
    let server = Server::new(config, Some(file), ServerClock::system(), Snapshot::default());
    assert!(
        server.reload().expect("the file is valid").is_empty(),
        "the command line is no change"
    );
    let changed = "[server]\ngrpc = \"off\"\nwatch = true\ntrusted_proxies = [\"10.0.0.0/8\"]\n\
                   caps = { waiting = 1 }\n";
    directory.write("t.toml", changed);
    assert_eq!(server.reload().expect("the file is valid"), ["grpc", "watch"]);
    assert_eq!(
        server.reload().expect("the file is valid"),
        ["grpc", "watch"],
        "the settings still differ"
    );
    let now = &server.config().server;
    assert_eq!(
        now.trusted_proxies,
        ["10.0.0.0/8".parse().unwrap()],
        "a reload applies this setting"
    );
    assert_eq!((now.caps.waiting_max, now.is_watching), (1, false));
    assert!(now.grpc.is_some() && now.http.is_some());
}
