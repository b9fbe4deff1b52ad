//! Snapshots (T38): a restored limiter has what it had at the snapshot plus what has refilled since, never more. A damaged
//! snapshot is rejected, and a start never fails because of one. Also with a changed rule (T12) and other threads (T39).
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod rules;

use rules::EVERY;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tidegate::clock::Sleep;
use tidegate::limiter::Builder;
use tidegate::snapshot::Snapshot;
use tidegate::{Clock, Limiter, ManualClock, Span, Timestamp};

const KEYS: u64 = 300;

/// A directory of its own that is gone when the test is.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("limits.snapshot")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Every second key is audited; the others are decided by the fast paths.
fn builder(rule: &str) -> Builder {
    Limiter::builder(rule.parse().unwrap()).audit(2)
}

fn limiter(rule: &str, clock: &ManualClock) -> Limiter<ManualClock> {
    builder(rule).with_clock(clock.clone())
}

#[track_caller]
fn assert_is_within_bounds<C: Clock>(limiter: &Limiter<C>) {
    let audit = limiter.audit().unwrap();
    assert!(audit.admissions > 0, "some keys were audited");
    assert_eq!(audit.violations, 0, "{:?}", audit.first);
}

/// Keys that have used up different amounts.
fn used(rule: &str, clock: &ManualClock) -> Limiter<ManualClock> {
    let limiter = limiter(rule, clock);
    for key in 0..KEYS {
        for _ in 0..=key % 7 {
            let _ = limiter.check(&key);
        }
        clock.advance(Span::from_micros(key * 13));
    }
    limiter
}

fn bytes(limiter: &Limiter<ManualClock>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Snapshot::write(&mut bytes, [("api", limiter)]).unwrap();
    bytes
}

fn restored(bytes: &[u8], rule: &str, clock: &ManualClock) -> Limiter<ManualClock> {
    Snapshot::read(bytes).unwrap().restore_with_clock("api", builder(rule), clock.clone())
}

#[test]
fn a_restored_limiter_decides_as_if_it_had_never_stopped() {
    for rule in EVERY {
        for pause in [0, 1, 150_000, 7_000_000, 100_000_000_000].map(Span::from_micros) {
            let clock = ManualClock::new();
            let before = used(rule, &clock);
            let bytes = bytes(&before);
            clock.advance(pause);
            let after = restored(&bytes, rule, &clock);
            for key in 0..KEYS + 20 {
                for _ in 0..3 {
                    assert_eq!(after.check(&key), before.check(&key), "{rule}, {key}, {pause}");
                }
            }
            assert_is_within_bounds(&before);
            assert_is_within_bounds(&after);
        }
    }
}

/// The machine starts again: its steady clock begins anew, and its calendar may have been set.
#[derive(Clone)]
struct Rebooted {
    steady: ManualClock,
    calendar: ManualClock,
}

impl Clock for Rebooted {
    fn now(&self) -> Timestamp {
        self.steady.now()
    }

    fn calendar_now(&self) -> Timestamp {
        self.calendar.now()
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        self.steady.sleep_until(at)
    }
}

#[test]
fn no_key_gets_more_than_at_the_snapshot_plus_the_calendar_time_since() {
    let steady = |rule: &&str| !["fixed", "calendar"].iter().any(|word| rule.contains(word));
    for rule in EVERY.into_iter().filter(steady).chain(["40/s fixed from first"]) {
        for elapsed in [0_u64, 50_000, 3_000_000].map(Span::from_micros) {
            let clock = ManualClock::new();
            let before = used(rule, &clock);
            let bytes = bytes(&before);
            let taken_at = clock.now();
            clock.advance(elapsed);
            for uptime in [0, 5_000_000_000_u64, 10_000_000_000_000_000] {
                let rebooted = Rebooted {
                    steady: ManualClock::at(Timestamp::from_micros(uptime)),
                    calendar: ManualClock::at(taken_at + elapsed),
                };
                let builder = Limiter::builder(rule.parse().unwrap());
                let snapshot = Snapshot::read(&bytes).unwrap();
                let after = snapshot.restore_with_clock("api", builder, rebooted.clone());
                for key in 0..KEYS {
                    let (was, is) = (before.check_n(&key, 0), after.check_n(&key, 0));
                    assert_eq!(is, was, "{rule}, {key}, {elapsed} later, up for {uptime}us");
                }
                // Set back, the calendar says that no time has passed.
                let set_back = Rebooted {
                    calendar: ManualClock::at(taken_at - Span::from_secs(86_400)),
                    ..rebooted
                };
                let builder = Limiter::builder(rule.parse().unwrap());
                let after = snapshot.restore_with_clock("api", builder, set_back);
                let then = restored(&bytes, rule, &ManualClock::at(taken_at));
                for key in 0..KEYS {
                    let (was, is) = (then.check_n(&key, 0), after.check_n(&key, 0));
                    assert_eq!(is, was, "{rule}, {key}, with the calendar set back");
                }
            }
        }
    }
}

/// A clock that moves whenever it is looked at: writing takes time.
#[derive(Clone)]
struct Busy(ManualClock);

impl Clock for Busy {
    fn now(&self) -> Timestamp {
        self.0.advance(Span::from_millis(3));
        self.0.now()
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        self.0.sleep_until(at)
    }
}

#[test]
fn the_time_of_writing_refills_nothing() {
    let clock = Busy(ManualClock::new());
    let limiter = || Limiter::with_clock("100/s burst 50".parse().unwrap(), clock.clone());
    let limiters: Vec<_> = (0..20).map(|_| limiter()).collect();
    for limiter in &limiters {
        let _ = limiter.check_n("alice", 50);
    }
    let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let mut bytes = Vec::new();
    Snapshot::write(&mut bytes, names.iter().map(|name| &**name).zip(&limiters)).unwrap();
    let snapshot = Snapshot::read(&bytes).unwrap();
    for (name, live) in names.iter().zip(&limiters) {
        let builder = Limiter::builder("100/s burst 50".parse().unwrap());
        let restored = snapshot.restore_with_clock(name, builder, clock.clone());
        let restored = restored.check_n("alice", 0).remaining;
        let live = live.check_n("alice", 0).remaining;
        assert!(restored <= live, "{restored} of {name}, which has {live}");
    }
}

#[test]
fn the_overflow_state_is_restored() {
    let clock = ManualClock::new();
    let builder = || Limiter::builder("1/day".parse().unwrap()).max_keys(1);
    let before = builder().with_clock(clock.clone());
    assert!(before.check("alice").is_allow());
    assert!(before.check("bob").is_allow());
    assert!(before.check("carol").is_deny());
    let snapshot = Snapshot::read(&bytes(&before)).unwrap();
    let after = snapshot.restore_with_clock("api", builder(), clock);
    assert!(after.check("carol").is_deny());
}

#[test]
fn permits_with_a_lease_are_restored_and_others_are_not() {
    let clock = ManualClock::new();
    let leased = limiter("concurrency 2 lease 10s", &clock);
    let held = leased.try_acquire("alice").unwrap();
    let bytes_leased = bytes(&leased);
    clock.advance(Span::from_secs(4));
    let after = restored(&bytes_leased, "concurrency 2 lease 10s", &clock);
    assert_eq!(after.check_n("alice", 0).remaining, 1);
    clock.advance(Span::from_secs(6));
    assert_eq!(after.check_n("alice", 0).remaining, 2, "its lease has run out");
    drop(held);

    let unleased = limiter("concurrency 2", &clock);
    let held = unleased.try_acquire("alice").unwrap();
    let after = restored(&bytes(&unleased), "concurrency 2", &clock);
    assert_eq!(after.check_n("alice", 0).remaining, 2, "the permit ended with its process");
    drop(held);
}

#[test]
fn usage_carries_over_to_a_rule_that_changed_before_the_restore() {
    let clock = ManualClock::new();
    let before = limiter("10/day", &clock);
    let _ = before.check_n("alice", 10);
    let _ = before.check_n("bob", 4);
    let bytes = bytes(&before);
    for rule in ["20/day", "20/day sliding-log", "20/day sliding", "20/day fixed from first"] {
        let after = restored(&bytes, rule, &clock);
        assert!(after.check_n("alice", 0).remaining <= 11, "{rule}");
        assert!((15..=17).contains(&after.check_n("bob", 0).remaining), "{rule}");
        assert_eq!(after.check_n("carol", 0).remaining, 20, "{rule}");
    }
}

#[test]
fn keys_in_debt_are_restored_beyond_a_smaller_maximum() {
    let clock = ManualClock::new();
    let before = limiter("1/day", &clock);
    for key in 0..KEYS {
        let _ = before.check(&key);
    }
    let builder = Limiter::builder("1/day".parse().unwrap()).max_keys(10);
    let snapshot = Snapshot::read(&bytes(&before)).unwrap();
    let after = snapshot.restore_with_clock("api", builder, clock.clone());
    assert!((0..KEYS).all(|key| after.check(&key).is_deny()));
    assert!(after.check("new").is_allow(), "from what is shared");
    assert!(after.check("newer").is_deny());
    clock.advance(Span::from_secs(86_401));
    after.sweep();
    assert_eq!(after.keys(), 0);
}

/// Also a debt that was charged beyond what remained, which may exceed the capacity of the rule.
#[test]
fn a_restored_debt_of_any_size_is_repaid_as_before() {
    for rule in EVERY {
        for bursts in [1, 2, 10, 47, 1_000_000] {
            for pause in [0, 1, 150_000, 7_000_000, 100_000_000_000].map(Span::from_micros) {
                let clock = ManualClock::new();
                clock.advance(Span::from_micros(1_234_567));
                let before = limiter(rule, &clock);
                let limit = before.peek("alice").limit;
                before.request("alice").cost(limit * bursts + 3).charge();
                clock.advance(Span::from_micros(77_777));
                let bytes = bytes(&before);
                clock.advance(pause);
                let after = restored(&bytes, rule, &clock);
                let place = format!("{rule}, {bursts} bursts, {pause}");
                for _ in 0..5 {
                    for cost in [0, 1, 2, limit] {
                        let [was, is] = [&before, &after].map(|of| of.request("alice").cost(cost));
                        assert_eq!(is.peek(), was.peek(), "{place}, {cost}");
                    }
                    assert_eq!(after.check("alice"), before.check("alice"), "{place}");
                    let wait = before.peek("alice").retry_after().unwrap_or(Span::from_micros(1));
                    clock.advance(Span::from_micros(wait.as_micros().div_ceil(2)));
                }
                for of in [&before, &after] {
                    of.request("alice").cost(limit + 1).charge();
                }
                assert_eq!(after.check("alice"), before.check("alice"), "{place}: and more");
            }
        }
    }
}

/// Numbers that are the same in every run.
fn random(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

#[test]
fn any_sequence_of_requests_and_charges_is_restored_exactly() {
    for rule in EVERY {
        for start in 0..60 {
            let (mut seed, clock) = (start, ManualClock::new());
            let before = limiter(rule, &clock);
            let limit = before.peek("alice").limit;
            let longest = before.peek("alice").reset_after.as_micros().max(1_000) * limit;
            for _ in 0..random(&mut seed, 15) {
                let _ = before.check_n("alice", random(&mut seed, limit));
                if random(&mut seed, 3) == 0 {
                    before.request("alice").cost(random(&mut seed, limit * 3)).charge();
                }
                clock.advance(Span::from_micros(random(&mut seed, longest)));
            }
            let bytes = bytes(&before);
            clock.advance(Span::from_micros(random(&mut seed, longest)));
            let after = restored(&bytes, rule, &clock);
            for _ in 0..8 {
                let cost = random(&mut seed, limit + 1);
                let [was, is] = [&before, &after].map(|of| of.request("alice").cost(cost).peek());
                assert_eq!(is, was, "{rule}, {start}, {cost}");
                assert_eq!(after.check("alice"), before.check("alice"), "{rule}, {start}");
                clock.advance(Span::from_micros(random(&mut seed, longest)));
            }
        }
    }
}

#[test]
fn turns_of_waiters_count_as_used_after_a_restore() {
    let clock = ManualClock::new();
    let before = limiter("10/s", &clock);
    let waits: Vec<_> =
        (0..4).map(|_| before.request("alice").cost(10).reserve().unwrap()).collect();
    let after = restored(&bytes(&before), "10/s", &clock);
    assert_eq!(after.check("alice").retry_after(), Some(Span::from_millis(3_100)));
    drop(waits);
    clock.advance(Span::from_millis(3_100));
    assert!(after.check("alice").is_allow());
    assert!(after.check("alice").is_deny());
}

/// As by a live change: under twice the rate it is paid in half the time, and never at once.
#[test]
fn a_debt_carries_over_to_another_rule() {
    for (old, new) in [
        ("10/s", "20/s"),
        ("10/s", "20/s fixed"),
        ("10/s fixed", "20/s"),
        ("600/min calendar", "20/s sliding"),
        ("10/s sliding-log", "1200/min calendar"),
    ] {
        let clock = ManualClock::new();
        let before = limiter(old, &clock);
        let limit = before.peek("alice").limit;
        before.request("alice").cost(limit + 6_000).charge();
        let owed = before.peek("alice").retry_after().unwrap();
        let after = restored(&bytes(&before), new, &clock);
        let wait = after.check("alice").retry_after().unwrap();
        before.set_rule(new.parse().unwrap());
        let live = before.check("alice").retry_after().unwrap();
        let place = format!("{old} to {new}: {owed}, live {live}, restored {wait}");
        let burst = Span::from_secs(60);
        assert!(wait + burst >= live && wait <= live + burst, "{place}");
        assert!(wait >= Span::from_secs(240) && wait <= owed, "{place}");
        clock.advance(wait);
        assert!(after.check("alice").is_allow(), "{place}");
    }
}

#[test]
fn a_restored_debt_can_be_reset_refunded_and_is_never_evicted() {
    let clock = ManualClock::new();
    let before = limiter("10/s", &clock);
    for user in ["alice", "bob"] {
        before.request(user).cost(1_010).charge();
    }
    let after = restored(&bytes(&before), "10/s", &clock);
    assert_eq!((after.sweep(), after.keys()), (0, 2), "keys in debt are not evicted");
    after.refund("alice", 10);
    assert_eq!(after.check("alice").retry_after(), Some(Span::from_millis(99_100)));
    after.reset("bob");
    assert_eq!(after.check("bob").remaining, 9);
    let again = restored(&bytes(&after), "10/s", &clock);
    assert_eq!(again.check("alice").retry_after(), Some(Span::from_millis(99_100)), "twice saved");
    clock.advance(Span::from_millis(99_100));
    assert!(again.check("alice").is_allow() && again.check("alice").is_deny());
    clock.advance(Span::from_secs(2));
    again.sweep();
    assert_eq!(again.keys(), 0);
}

#[test]
fn a_debt_that_is_never_repaid_is_restored_also_in_the_overflow_state() {
    let clock = ManualClock::new();
    let builder = || Limiter::builder("10/s".parse().unwrap()).max_keys(1);
    let before = builder().with_clock(clock.clone());
    before.request("mallory").cost(u64::MAX).charge();
    before.request("one of many").cost(1_010).charge();
    assert_eq!((before.keys(), before.stats().keys), (1, 1));
    let snapshot = Snapshot::read(&bytes(&before)).unwrap();
    let after = snapshot.restore_with_clock("api", builder(), clock.clone());
    assert_eq!(after.check("another of many").retry_after(), Some(Span::from_millis(100_100)));
    for rule in EVERY {
        let before = limiter(rule, &clock);
        before.request("mallory").cost(u64::MAX).charge();
        let after = restored(&bytes(&before), rule, &clock);
        clock.advance(Span::from_secs(1_000_000_000));
        let [was, is] = [&before, &after].map(|of| of.check("mallory").is_deny());
        assert_eq!(is, was, "{rule}: thirty years later");
    }
}

#[test]
fn a_snapshot_with_any_byte_changed_is_rejected() {
    let clock = ManualClock::new();
    for rule in ["100/h burst 9", "5/h sliding-log", "5/s warmup 1s"] {
        let limiter = limiter(rule, &clock);
        for key in 0..5 {
            let _ = limiter.check(&key);
        }
        let whole = bytes(&limiter);
        assert!(Snapshot::read(&whole).is_ok());
        for at in 0..whole.len() {
            assert!(Snapshot::read(&whole[..at]).is_err(), "cut off at {at}");
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                assert!(Snapshot::read(&damaged).is_err(), "bit {bit} of byte {at}");
            }
        }
    }
}

#[test]
fn an_incomplete_file_is_reported_and_the_previous_one_is_read() {
    let scratch = Scratch::new("fallback");
    let (path, clock) = (scratch.file(), ManualClock::new());
    let limiter = limiter("5/day", &clock);
    let _ = limiter.check_n("alice", 3);
    Snapshot::save(&path, [("api", &limiter)]).unwrap();
    let _ = limiter.check_n("alice", 1);
    Snapshot::save(&path, [("api", &limiter)]).unwrap();
    let remaining = |path: &Path| {
        let loaded = Snapshot::load(path);
        let builder = Limiter::builder("5/day".parse().unwrap());
        let restored = loaded.snapshot.restore_with_clock("api", builder, clock.clone());
        let problems: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
        (restored.check_n("alice", 0).remaining, problems)
    };
    assert_eq!(remaining(&path), (1, vec![]));

    let whole = fs::read(&path).unwrap();
    for damage in [whole[..whole.len() / 2].to_vec(), Vec::new(), b"rubbish".to_vec()] {
        fs::write(&path, damage).unwrap();
        let (left, problems) = remaining(&path);
        assert_eq!((left, problems.len()), (2, 1), "{problems:?}");
        assert!(problems[0].starts_with(&path.display().to_string()), "{problems:?}");
    }
    let mut future = whole.clone();
    future[8] = 9;
    fs::write(&path, future).unwrap();
    let (left, problems) = remaining(&path);
    assert_eq!(left, 2);
    assert!(problems[0].contains("version 9"), "{problems:?}");

    fs::write(scratch.0.join("limits.snapshot.previous"), b"rubbish too").unwrap();
    let (left, problems) = remaining(&path);
    assert_eq!(
        (left, problems.len()),
        (5, 2),
        "both are reported, and the process starts all the same"
    );
}

#[test]
fn a_failed_write_leaves_the_file_unchanged_and_no_partial_file() {
    let scratch = Scratch::new("full");
    let (path, clock) = (scratch.file(), ManualClock::new());
    let limiter = used("100/h burst 9", &clock);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let error = Snapshot::write(full, [("api", &limiter)]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(28), "no space left");

    Snapshot::save(&path, [("api", &limiter)]).unwrap();
    // A directory where the part should go: the write fails before anything was replaced.
    fs::create_dir(scratch.0.join("limits.snapshot.part")).unwrap();
    assert!(Snapshot::save(&path, [("api", &limiter)]).is_err());
    assert!(Snapshot::load(&path).problems.is_empty());
    fs::remove_dir(scratch.0.join("limits.snapshot.part")).unwrap();

    fs::write(scratch.0.join("limits.snapshot.part"), b"interrupted").unwrap();
    assert!(!Snapshot::load(&path).snapshot.is_empty());
    let left: Vec<_> = fs::read_dir(&scratch.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["limits.snapshot"]);
}

#[cfg(unix)]
#[test]
fn the_file_has_secrets_so_only_its_owner_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("mode");
    let limiter = limiter("5/day", &ManualClock::new());
    Snapshot::save(scratch.file(), [("api", &limiter)]).unwrap();
    let mode = fs::metadata(scratch.file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Time stands still, so what a key has left only becomes less: a snapshot taken meanwhile must lie
/// between what was left before it began and what is left at the end.
#[test]
fn each_key_is_saved_as_of_one_moment_while_threads_decide() {
    let clock = ManualClock::new();
    let limiter = limiter("1000000/day", &clock);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (limiter, is_done) = (&limiter, &is_done);
            scope.spawn(move || {
                for round in 0..u64::MAX {
                    if is_done.load(Ordering::Relaxed) {
                        return;
                    }
                    let _ = limiter.check(&((round * 7 + thread) % KEYS));
                }
            });
        }
        for _ in 0..40 {
            let left = |limiter: &Limiter<ManualClock>| -> Vec<u64> {
                (0..KEYS).map(|key| limiter.check_n(&key, 0).remaining).collect()
            };
            let before = left(&limiter);
            let bytes = bytes(&limiter);
            let after = left(&limiter);
            let saved = left(&restored(&bytes, "1000000/day", &clock));
            let lies_between = |key: usize| after[key] <= saved[key] && saved[key] <= before[key];
            assert!((0..before.len()).all(lies_between));
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

/// Set for the child that is going to be killed.
const CHILD: &str = "TIDEGATE_SNAPSHOT_CHILD";

/// Not a test by itself: the child of the next one, which saves until it is killed.
#[test]
fn child_that_saves_for_ever() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let started = Snapshot::load(&path);
    assert!(started.problems.is_empty(), "{:?}", started.problems);
    let limiter = started.snapshot.restore("api", builder("1000000/day"));
    for round in 0..u64::MAX {
        for key in 0..2_000 {
            let _ = limiter.check(&(key + round));
        }
        assert_is_within_bounds(&limiter);
        Snapshot::save(&path, [("api", &limiter)]).unwrap();
    }
}

#[test]
fn a_process_killed_at_any_moment_restarts_with_a_complete_snapshot() {
    let loops = if std::env::var_os("TIDEGATE_FULL").is_some() { 1_000 } else { 25 };
    let scratch = Scratch::new("killed");
    let path = scratch.file();
    for round in 0..loops {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_saves_for_ever", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Until it has saved something in this round, and then a moment that is never the same.
        let before = modified(&path);
        while modified(&path) == before {
            assert!(child.try_wait().unwrap().is_none(), "it does not start after round {round}");
            thread::yield_now();
        }
        for _ in 0..(round * 7_919) % 20_000 {
            thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let loaded = Snapshot::load(&path);
        assert!(loaded.problems.is_empty(), "{:?} after round {round}", loaded.problems);
        assert!(!loaded.snapshot.is_empty(), "after round {round}");
    }
    let mut left: Vec<_> =
        fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    // It may have been killed when there was no previous one for a moment.
    left.retain(|name| name != "limits.snapshot.previous");
    assert_eq!(left, ["limits.snapshot"]);
}

fn modified(path: &Path) -> Option<std::time::SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}
