//! A reset under a concurrency rule (spec/concurrency.md): the requests in flight are no longer counted, and their permits release
//! nothing.

use crate::executor::Executor;
use crate::{free, gate, granted, numbers};
use tidegate::{Limiter, ManualClock, Span};

#[test]
fn a_reset_clears_requests_in_flight_and_admits_waiters() {
    for rule in ["concurrency 2", "concurrency 2 lease 1h"] {
        let (gate, _) = gate(rule);
        let forgotten = [gate.try_acquire().unwrap(), gate.try_acquire().unwrap()];
        let mut executor = Executor::new();
        let next: Vec<usize> = (0..4).map(|_| executor.spawn(gate.acquire())).collect();
        assert!(executor.run().is_empty());
        executor.cancel(next[1]);
        gate.reset();
        let held = granted(&mut executor);
        assert_eq!(numbers(&held), [next[0], next[2]], "{rule}: two waiters, and not the last");
        drop(forgotten);
        assert!(
            executor.run().is_empty(),
            "{rule}: permits from before the reset are not released"
        );
        assert_eq!(free(&gate), 0);
        drop(held);
        assert_eq!(numbers(&granted(&mut executor)), next[3..]);
        assert_eq!(free(&gate), 2);
    }
}

/// An unused key is swept after a reset, and its tickets are numbered anew. The clock stands still.
#[test]
fn a_permit_from_before_a_reset_releases_no_later_permit() {
    let sweep: fn(&Limiter<ManualClock>) = |limiter| {
        limiter.sweep();
    };
    let change = |limiter: &Limiter<ManualClock>| {
        limiter.set_rule("1/s".parse().unwrap());
        limiter.set_rule("concurrency 1".parse().unwrap());
    };
    let nothing: fn(&Limiter<ManualClock>) = |_| ();
    for between in [sweep, change, nothing] {
        let limiter = Limiter::with_clock("concurrency 1".parse().unwrap(), ManualClock::new());
        let forgotten = limiter.request("k").try_acquire().unwrap();
        limiter.reset("k");
        between(&limiter);
        let held = limiter.request("k").try_acquire().unwrap();
        drop(forgotten);
        assert!(limiter.request("k").try_acquire().is_err(), "one is in flight");
        drop(held);
        assert!(limiter.request("k").try_acquire().is_ok());
    }
}

#[test]
fn a_reset_under_a_rate_clears_requests_in_flight_under_the_earlier_rule() {
    let (gate, _) = gate("concurrency 1");
    let forgotten = gate.try_acquire().unwrap();
    gate.set_rule("1/s".parse().unwrap());
    gate.reset();
    gate.set_rule("concurrency 1".parse().unwrap());
    let held = gate.try_acquire().unwrap();
    drop(forgotten);
    assert!(gate.try_acquire().is_err());
    drop(held);
    assert!(gate.try_acquire().is_ok());
}

#[test]
fn a_key_whose_permits_were_forgotten_is_swept_when_time_has_moved_on() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock("concurrency 1".parse().unwrap(), clock.clone());
    let forgotten = limiter.request("k").try_acquire().unwrap();
    limiter.reset("k");
    limiter.sweep();
    assert_eq!(limiter.stats().keys, 1);
    clock.advance(Span::from_secs(2));
    limiter.sweep();
    assert_eq!(limiter.stats().keys, 0);
    drop(forgotten);
    assert_eq!(limiter.stats().keys, 0);
}
