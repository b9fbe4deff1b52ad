//! Debts over restarts, wanted and unwanted.
//!
//! A key that gets nothing back for a day counts what was taken. After a kill, all that was taken until the
//! snapshot is still taken; after an orderly end, all of it.

use crate::daemon::{Daemon, Directory};
use std::time::{Duration, Instant, SystemTime};

const BURST: u64 = 1_000_000;
const CHECK: &str = "TIDE.CHECK slow key";
const PEEK: &str = "TIDE.PEEK slow key COST 0";
/// Between what a snapshot has and when its file was written.
const SAVING: Duration = Duration::from_millis(400);

fn configured(directory: &Directory) -> std::path::PathBuf {
    directory.write(
        "t.toml",
        &format!(
            "[server.snapshot]\npath = \"state\"\nevery = \"100ms\"\n[limits.slow]\nrule = \"1/day burst {BURST}\"\n"
        ),
    )
}

/// Restarts: few for every change, many when all is tested.
fn restarts() -> usize {
    if std::env::var_os("TIDEGATE_FULL").is_some() { 200 } else { 20 }
}

/// Numbers that are different each time; the seed is said when something is wrong.
fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn a_killed_server_starts_again_and_hands_out_nothing_twice_that_a_snapshot_knew() {
    let directory = Directory::new();
    let config = configured(&directory);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let mut seed = u64::from(now.subsec_nanos()) << 1 | 1;
    let first_seed = seed;
    // When it was told, and what remained.
    let mut told = vec![(SystemTime::UNIX_EPOCH, BURST)];
    let mut least_left = BURST;
    for life in 0..restarts() {
        let said = format!("life {life}, seed {first_seed}");
        let saved = std::fs::metadata(directory.0.join("state")).and_then(|file| file.modified());
        let daemon = Daemon::start("", &config, &[]);
        let mut peer = daemon.connect();
        let (_, remaining) = peer.five(PEEK);
        let known = saved.unwrap_or(SystemTime::UNIX_EPOCH).checked_sub(SAVING);
        let known = known.unwrap_or(SystemTime::UNIX_EPOCH);
        let most = told.iter().rev().find(|(at, _)| *at <= known).map_or(BURST, |(_, left)| *left);
        let least = told.last().map_or(0, |(_, left)| left.saturating_sub(1));
        assert!(remaining <= most, "{said}: {remaining} remain, when it was saved {most} did");
        assert!(remaining >= least, "{said}: {remaining} remain of {least}");
        least_left = least_left.min(remaining);
        told.clear();
        told.push((SystemTime::UNIX_EPOCH, remaining));
        let until = Instant::now() + Duration::from_millis(20 + random(&mut seed) % 500);
        while Instant::now() < until {
            let (is_allowed, remaining) = peer.five(CHECK);
            assert!(is_allowed, "{said}");
            told.push((SystemTime::now(), remaining));
        }
        daemon.kill();
    }
    assert!(directory.0.join("state").exists(), "no snapshot was ever written");
    assert!(least_left < BURST, "nothing of all that was taken was ever kept");
}

#[test]
fn a_server_that_is_told_to_end_forgets_nothing() {
    let directory = Directory::new();
    let config = configured(&directory);
    let mut remaining = BURST;
    for _ in 0..3 {
        let daemon = Daemon::start("", &config, &[]);
        let mut peer = daemon.connect();
        assert_eq!(peer.five(PEEK), (true, remaining));
        for _ in 0..100 {
            assert_eq!(peer.five(CHECK), (true, remaining - 1));
            assert_eq!(peer.ask("CL.THROTTLE other 1000 1 86400"), "*5");
            (0..5).for_each(|_| assert!(peer.line().starts_with(':')));
            remaining -= 1;
        }
        daemon.signal("TERM");
        assert!(daemon.end().success());
    }
    let daemon = Daemon::start("", &config, &[]);
    assert_eq!(daemon.connect().five(PEEK), (true, BURST - 300));
}

#[test]
fn a_snapshot_that_is_broken_does_not_keep_it_from_starting() {
    let directory = Directory::new();
    let config = configured(&directory);
    directory.write("state", "this is no snapshot");
    let daemon = Daemon::start("", &config, &[]);
    assert_eq!(daemon.connect().five(PEEK), (true, BURST));
    assert!(daemon.says("the snapshot is not used"));
}
