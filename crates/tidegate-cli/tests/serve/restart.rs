//! Charged requests across restarts, after a kill and after an orderly shutdown.
//!
//! Three keys with different kinds of state do not refill during the test, so they count the charged requests; a fourth key
//! refills all the time. After a kill, everything charged before the snapshot is still charged, and the fourth key has
//! refilled by no more than its rate. After a shutdown, nothing is lost.

use crate::daemon::{Daemon, Directory};
use std::time::{Duration, Instant, SystemTime};

const BURST: u64 = 1_000_000;
/// Refill of the fourth key per second.
const RATE: u64 = 1_000;
const CHECK: &str = "TIDE.CHECK slow key";
const PEEK: &str = "TIDE.PEEK slow key COST 0";
/// Keys that do not refill: the command that charges one, and the command that peeks.
const SLOW: [(&str, &str); 3] = [
    (CHECK, PEEK),
    ("TIDE.CHECK window key", "TIDE.PEEK window key COST 0"),
    ("CL.THROTTLE key 999999 1 3600", "CL.THROTTLE key 999999 1 3600 0"),
];
const CHECK_QUICK: &str = "TIDE.CHECK quick key COST 50";
const PEEK_QUICK: &str = "TIDE.PEEK quick key COST 0";
/// How often the server is killed.
const LIVES: usize = 200;
/// Minimum number of lives that are long enough for a charge in them to be in a snapshot with certainty.
const KEPT_ANEW_MIN: usize = 3;
/// Maximum time between the state in a snapshot and the modification of its file.
const SAVING: Duration = Duration::from_millis(400);

fn configured(directory: &Directory) -> std::path::PathBuf {
    directory.write(
        "t.toml",
        &format!(
            "[server.snapshot]\npath = \"state\"\nevery = \"100ms\"\n\
             [limits.slow]\nrule = \"1/day burst {BURST}\"\n\
             [limits.window]\nrule = \"{BURST}/365day sliding\"\n\
             [limits.quick]\nrule = \"{RATE}/s burst {BURST}\"\n"
        ),
    )
}

/// Remaining counts at some time between `asked` and `at`.
struct Observation {
    asked: SystemTime,
    at: SystemTime,
    slow: [u64; SLOW.len()],
    quick: u64,
    /// Whether the snapshot must contain it, independent of its age.
    is_saved: bool,
}

/// Pseudo-random numbers, different in each run; a failure prints the seed.
fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Returns the lifetime of a server. Most end before or during the first snapshot; some are long enough to be in one.
fn lifetime(seed: &mut u64) -> Duration {
    let most_ms = if random(seed).is_multiple_of(5) { 1_000 } else { 120 };
    Duration::from_millis(random(seed) % most_ms)
}

#[test]
fn a_killed_server_restarts_and_admits_nothing_twice_that_a_snapshot_holds() {
    let directory = Directory::new();
    let config = configured(&directory);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let mut seed = u64::from(now.subsec_nanos()) << 1 | 1;
    let first_seed = seed;
    let start = SystemTime::now();
    let whole = [BURST; SLOW.len()];
    let mut observations =
        vec![Observation { asked: start, at: start, slow: whole, quick: BURST, is_saved: true }];
    let (mut least_left, mut kept_anew) = ((whole, BURST), 0);
    for life in 0..LIVES {
        let context = format!("life {life}, seed {first_seed}");
        let saved = std::fs::metadata(directory.0.join("state")).and_then(|file| file.modified());
        let daemon = Daemon::start("", &config, &[]);
        let mut peer = daemon.connect();
        let asked = SystemTime::now();
        let slow = SLOW.map(|(_, peek)| peer.five(peek).1);
        let quick = peer.five(PEEK_QUICK).1;
        let known = saved.ok().and_then(|saved| saved.checked_sub(SAVING));
        let is_known =
            |seen: &&Observation| seen.is_saved || known.is_some_and(|known| seen.at <= known);
        let kept = observations.iter().rev().find(is_known).expect("the first is always saved");
        kept_anew += usize::from(!kept.is_saved);
        for (slow, kept) in slow.iter().zip(kept.slow) {
            assert!(*slow <= kept, "{context}: {slow} remain, but {kept} in the snapshot");
        }
        let refilled = kept.asked.elapsed().expect("the clock does not go back").as_micros()
            * u128::from(RATE);
        let most = u128::from(kept.quick) + refilled.div_ceil(1_000_000);
        assert!(u128::from(quick) <= most, "{context}: {quick} remain, more than {most}");
        for (place, slow) in slow.into_iter().enumerate() {
            let least = observations.last().map_or(0, |last| last.slow[place].saturating_sub(1));
            assert!(slow >= least, "{context}: {slow} remain, fewer than {least}");
            least_left.0[place] = least_left.0[place].min(slow);
        }
        least_left.1 = least_left.1.min(quick);
        observations.clear();
        observations.push(Observation {
            asked,
            at: SystemTime::now(),
            slow,
            quick,
            is_saved: true,
        });
        let until = Instant::now() + lifetime(&mut seed);
        while Instant::now() < until {
            let asked = SystemTime::now();
            let slow = SLOW.map(|(check, _)| {
                let (passes, remaining) = peer.five(check);
                assert!(passes, "{context}: {check}");
                remaining
            });
            let quick = peer.five(CHECK_QUICK).1;
            let at = SystemTime::now();
            observations.push(Observation { asked, at, slow, quick, is_saved: false });
        }
        daemon.kill();
    }
    assert!(directory.0.join("state").exists(), "no snapshot was ever written");
    let is_kept = least_left.0.iter().all(|left| *left < BURST) && least_left.1 < BURST;
    assert!(is_kept, "no charge was in a snapshot");
    assert!(
        kept_anew >= KEPT_ANEW_MIN,
        "only {kept_anew} lives were long enough to be in a snapshot"
    );
}

#[test]
fn a_server_that_ends_on_a_signal_loses_no_state() {
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
    let mut peer = daemon.connect();
    assert_eq!(peer.five(PEEK), (true, BURST - 300));
    assert_eq!(peer.ask("CL.THROTTLE other 1000 1 86400 0"), "*5");
    let throttled: Vec<String> = (0..3).map(|_| peer.line()).collect();
    assert_eq!(throttled, [":0", ":1001", ":701"], "the key of CL.THROTTLE is in the snapshot too");
}

#[test]
fn a_permit_held_across_a_restart_can_be_released_once() {
    let directory = Directory::new();
    let text =
        "[server.snapshot]\npath = \"state\"\n[limits.pool]\nrule = \"concurrency 1 lease 1h\"\n";
    let config = directory.write("t.toml", text);
    let take = "TIDE.ACQUIRE pool key";
    let daemon = Daemon::start("", &config, &[]);
    let mut peer = daemon.connect();
    assert_eq!(peer.ask(take), "*5");
    let taken: Vec<String> = (0..6).map(|_| peer.line()).collect();
    assert_eq!((&*taken[0], &*taken[4]), (":1", "$32"));
    let release = format!("TIDE.RELEASE {}", taken[5]);
    daemon.signal("TERM");
    assert!(daemon.end().success());
    let daemon = Daemon::start("", &config, &[]);
    let mut peer = daemon.connect();
    assert_eq!(peer.ask(take), "*5");
    let denied: Vec<String> = (0..5).map(|_| peer.line()).collect();
    assert_eq!((&*denied[0], &*denied[4]), (":0", "$-1"), "the permit is still held");
    assert_eq!(peer.ask(&release), ":1");
    assert_eq!(peer.ask(&release), ":0", "a permit is released once");
    assert_eq!(peer.ask(take), "*5");
    assert_eq!(peer.line(), ":1", "the permit can be acquired again");
}

#[test]
fn the_server_starts_with_a_broken_snapshot() {
    let directory = Directory::new();
    let config = configured(&directory);
    directory.write("state", "this is no snapshot");
    let daemon = Daemon::start("", &config, &[]);
    assert_eq!(daemon.connect().five(PEEK), (true, BURST));
    assert!(daemon.has_logged("the snapshot is not used"));
}
