//! The eleven flaws of the seeds' own code (`docs/catalogue.md`, last section), each as a test that
//! their code would fail and ours must pass.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod contention;
mod executor;
mod rules;

use executor::Executor;
use rules::EVERY;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tidegate::{Clock, Gate, Limiter, ManualClock, Span, Verdict};

fn limiter(rule: &str) -> (Limiter<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::with_clock(rule.parse().unwrap(), clock.clone()), clock)
}

fn gate(rule: &str) -> (Gate<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    (Gate::with_clock(rule.parse().unwrap(), clock.clone()), clock)
}

/// How many of `times` are admitted at once, one after the other.
fn admitted(limiter: &Limiter<ManualClock>, times: u64) -> u64 {
    (0..times).map(|_| u64::from(limiter.check("alice").is_allow())).sum()
}

/// Check, then act: flawed code prints a few admissions more than one caller in turn gets.
#[test]
fn flaw_01_threads_that_race_on_one_key_get_what_one_caller_in_turn_gets() {
    for rule in EVERY {
        let (limiter, clock) = limiter(rule);
        let raced = contention::decide_on_threads(8, 16, || limiter.check("alice"));
        assert_eq!(raced, contention::decide_in_sequence(rule, clock.now(), 128), "{rule}");
    }
}

/// The time as the member of a set: flawed code prints 2 admitted of a log of 1 in the same instant.
#[test]
fn flaw_02_two_requests_of_one_microsecond_both_count_in_the_log() {
    let (log, clock) = limiter("3/s sliding-log");
    assert_eq!(admitted(&log, 10), 3);
    clock.advance(Span::from_micros(1));
    assert_eq!(admitted(&log, 10), 0);
    clock.advance(Span::from_micros(999_998));
    assert_eq!(admitted(&log, 10), 0, "a microsecond before the window has passed");
    clock.advance(Span::from_micros(1));
    assert_eq!(admitted(&log, 10), 3);
}

/// Attempts counted before the check: the flawed code still denies after its own retry time.
#[test]
fn flaw_03_hammering_while_refused_does_not_prolong_the_refusal() {
    for rule in EVERY.into_iter().filter(|rule| !rule.contains("smooth") && !rule.contains("warm"))
    {
        let (limiter, clock) = limiter(rule);
        while !limiter.check("alice").is_deny() {}
        let wait = limiter.check("alice").retry_after().unwrap();
        let due = clock.now() + wait;
        for _ in 0..200 {
            assert!(limiter.check("alice").is_deny(), "{rule}");
            clock.advance(Span::from_micros(wait.as_micros() / 201));
        }
        clock.set(due - Span::from_micros(1));
        assert!(limiter.check("alice").is_deny(), "{rule}: a microsecond early");
        clock.set(due);
        assert!(!limiter.check("alice").is_deny(), "{rule}: exactly at retry_after");
    }
}

/// How many are admitted by asking every `step`, again and again while it says yes, for `whole`.
fn polled(rule: &str, step: Span, whole: Span) -> u64 {
    let (gate, clock) = gate(rule);
    let end = clock.now() + whole;
    let mut admitted = 0;
    loop {
        while gate.check().is_allow() {
            admitted += 1;
        }
        if clock.now() >= end {
            return admitted;
        }
        clock.advance(step);
    }
}

/// Truncated time or rate: flawed code prints the burst and not one more, or an endless flood.
#[test]
fn flaw_04_asking_every_moment_still_credits_every_fraction() {
    let (us, ms) = (Span::from_micros(1), Span::from_millis(1));
    let (second, minutes) = (Span::from_secs(1), Span::from_secs(600));
    assert_eq!(polled("1500/s burst 2", ms, Span::from_secs(10)), 2 + 15_000);
    assert_eq!(polled("1000/s", us, second), 1_000 + 1_000);
    assert_eq!(polled("3/s", us, second), 3 + 3);
    assert_eq!(polled("7/min", ms, minutes), 7 + 70);
    assert_eq!(polled("7/min leaky capacity 2", ms, minutes), 2 + 70);
    assert_eq!(polled("1500000/s burst 2", us, second), 2 + 1_500_000);
    assert_eq!(polled("30r/m burst=2 nodelay", ms, minutes), 3 + 300);
    assert_eq!(polled("7/min sliding-log", ms, minutes), 7 + 70);
    assert_eq!(polled("7/min fixed", ms, minutes), 7 + 70);
}

/// `water <= capacity`: flawed code prints capacity + 1.
#[test]
fn flaw_05_the_capacity_is_exactly_the_capacity() {
    let exact = [
        ("100/s burst 20", 20),
        ("100/s", 100),
        ("3/s paced", 1),
        ("7/min leaky capacity 30", 30),
        ("7/min leaky", 7),
        ("40/s fixed", 40),
        ("40/s fixed from first", 40),
        ("25/day calendar", 25),
        ("64/s sliding-log", 64),
        ("61/s sliding", 61),
        // nginx's own burst is what comes on top of the one that is always free.
        ("10r/s burst=15 nodelay", 16),
    ];
    for (rule, capacity) in exact {
        assert_eq!(admitted(&limiter(rule).0, 3 * capacity), capacity, "{rule}");
        let (gate, _) = gate(rule);
        let by_gate: u64 = (0..3 * capacity).map(|_| u64::from(gate.check().is_allow())).sum();
        assert_eq!(by_gate, capacity, "{rule} at a gate");
    }
}

/// Decremented in `finally`: flawed code prints that the 21st is admitted, and every other one.
#[test]
fn flaw_06_a_window_does_not_forget_requests_that_have_finished() {
    let (limiter, clock) = limiter("20/20s fixed");
    for done in 0..20 {
        assert_eq!(limiter.request("alice").run(|| done), Ok(done));
    }
    assert!(limiter.request("alice").run(|| ()).is_err());
    let permit = limiter.try_acquire("bob").unwrap();
    drop(permit);
    assert_eq!(limiter.check_n("bob", 0).remaining, 19, "a dropped permit gives no count back");
    clock.advance(Span::from_secs(20));
    assert!(limiter.request("alice").run(|| ()).is_ok());
}

/// The aspect that refuses and then proceeds: flawed code prints that the work was done 10 times.
#[test]
fn flaw_07_refused_work_is_not_done() {
    let exact = [("3/s", 3), ("3/s fixed", 3), ("1/s queue capacity 5", 1), ("2/s smooth", 1)];
    for (rule, allowed) in exact {
        let (limiter, _) = limiter(rule);
        let mut done = 0;
        for _ in 0..10 {
            let _ = limiter.request("alice").run(|| done += 1);
        }
        assert_eq!(done, allowed, "{rule}");
    }
    let (gate, _) = gate("concurrency 1");
    let inner =
        gate.request().run(|| gate.request().run(|| unreachable!("two in flight")).is_err());
    assert_eq!(inner, Ok(true));
    assert!(gate.request().run(|| ()).is_ok());
}

/// One timer for each user: flawed code prints 60 000 threads, or 60 000 timers.
#[test]
fn flaw_08_sixty_thousand_users_are_no_thread_and_no_timer() {
    let (limiter, clock) = limiter("100/s burst 20");
    let before = threads();
    for user in 0..60_000_u32 {
        assert!(limiter.check(&user).is_allow());
    }
    // Other tests of this file come and go meanwhile; a thread per user would not hide among them.
    assert!(threads() < before + 100);
    assert_eq!(clock.sleepers(), 0);
    assert_eq!(limiter.keys(), 60_000);
    clock.advance(Span::from_secs(1));
    let (again, end) = (limiter.check_n(&7_u32, 20), clock.now());
    assert!(again.is_allow(), "refilled without a request");
    assert_eq!(clock.now(), end);
}

fn threads() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Threads:")).unwrap();
    line.trim().parse().unwrap()
}

/// A key per second: flawed code prints one key for each of the 120 000 callers.
#[test]
fn flaw_09_unused_keys_are_evicted() {
    for rule in EVERY.into_iter().filter(|rule| !rule.contains("day") && !rule.contains("/h")) {
        let (limiter, clock) = limiter(rule);
        let mut most = 0;
        for caller in 0..120_000_u32 {
            let _ = limiter.check(&caller);
            most = most.max(limiter.keys());
            clock.advance(Span::from_millis(10));
        }
        // The longest memory among them is a unit of 7/min: 900 callers. Twice that, and the least.
        assert!(most <= 2_048, "{rule}: {most} keys");
    }
}

/// The same for callers that had to wait and were admitted: nothing of them is kept afterwards.
#[test]
fn flaw_09_keys_whose_callers_waited_are_forgotten_too() {
    for rule in ["1000/s paced", "1/ms fixed", "1000/s queue capacity 3", "concurrency 1"] {
        let (limiter, clock) = limiter(rule);
        let mut executor = Executor::new();
        for caller in 0..20_000_u32 {
            let first = limiter.try_acquire(&caller).unwrap();
            executor.spawn(limiter.acquire(&caller));
            assert!(executor.run().is_empty(), "{rule}: it waits");
            drop(first);
            clock.advance(Span::from_millis(1));
            assert!(executor.run()[0].1.is_ok(), "{rule}: it was let in");
        }
        clock.advance(Span::from_secs(60));
        // A new key makes the store sweep for idle keys.
        for other in 0..2_048_u32 {
            let _ = limiter.check(&("other", other));
        }
        assert!(limiter.keys() <= 4_096, "{rule}: {} keys", limiter.keys());
    }
}

/// Tokens that start at 0: flawed code prints that the first caller of an idle system is refused.
#[test]
fn flaw_10_the_first_caller_is_admitted_unless_the_rule_says_otherwise() {
    for rule in EVERY.into_iter().filter(|rule| !rule.contains("start empty")) {
        let (limiter, clock) = limiter(rule);
        assert_eq!(limiter.check("first").verdict, Verdict::Allow, "{rule}");
        clock.advance(Span::from_secs(3_600));
        assert_eq!(limiter.check("an hour later").verdict, Verdict::Allow, "{rule}");
        assert_eq!(gate(rule).0.check().verdict, Verdict::Allow, "{rule}");
    }
    let (told, clock) = limiter("30/s start empty");
    assert!(told.check("first").is_deny());
    clock.advance(Span::from_secs(1));
    assert_eq!(admitted(&told, 100), 30);
}

/// A handler that fails between acquire and release: flawed code prints one permit less for each.
#[test]
fn flaw_11_a_permit_comes_back_however_its_holder_ends() {
    let (gate, _) = gate("concurrency 1");
    let fails = |how: u64| -> Result<u64, String> {
        let _permit = gate.try_acquire().map_err(|denied| denied.to_string())?;
        match how {
            0 => Err("an early return".into()),
            1 => panic!("a panic"),
            _ => Ok(how),
        }
    };
    for how in [0, 1, 2, 1, 0] {
        let _ = catch_unwind(AssertUnwindSafe(|| fails(how)));
        assert_eq!(gate.check_n(0).remaining, 1, "after way {how}");
    }
    let panicked = catch_unwind(AssertUnwindSafe(|| gate.request().run(|| panic!("in the work"))));
    assert!(panicked.is_err());
    assert_eq!(gate.check_n(0).remaining, 1);
}

/// The same for a task that is cancelled while it works, or while it waits.
#[test]
fn flaw_11_a_permit_comes_back_when_its_task_is_cancelled() {
    let (gate, _) = gate("concurrency 1");
    let mut executor = Executor::new();
    for _ in 0..2 {
        let gate = gate.clone();
        executor.spawn(async move {
            let permit = gate.acquire().await;
            std::future::pending::<()>().await;
            drop(permit);
        });
    }
    assert!(executor.run().is_empty());
    assert_eq!(gate.check_n(0).remaining, 0);
    executor.cancel(1);
    assert_eq!(gate.check_n(0).remaining, 0, "the first still works");
    executor.cancel(0);
    assert_eq!(gate.check_n(0).remaining, 1);
}
