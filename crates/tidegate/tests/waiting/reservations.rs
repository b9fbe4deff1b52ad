//! Reservations: the wait is known; refunded whole before they are due, spent when they are (T11, A9).

use crate::{AWAITED, assert_alike, exhausted, gate};
use tidegate::{Limiter, ManualClock, Reservation, Span};

// A9.
#[test]
fn the_wait_of_a_reservation_counts_down() {
    for rule in AWAITED {
        let (gate, clock, wait) = exhausted(rule);
        let reservation = gate.reserve().unwrap();
        assert_eq!(reservation.wait(), wait, "{rule}");
        clock.advance(Span::from_micros(1));
        assert_eq!(reservation.wait(), wait.saturating_sub(Span::from_micros(1)), "{rule}");
        clock.advance(wait);
        assert_eq!(reservation.wait(), Span::ZERO, "{rule}: due, and past due");
    }
}

// T11.
#[test]
fn a_reservation_dropped_before_it_is_due_is_refunded_whole() {
    for rule in AWAITED {
        let (gate, clock, wait) = exhausted(rule);
        let (twin, its_clock, _) = exhausted(rule);
        let reservation = gate.request().reserve().unwrap();
        clock.advance(wait.saturating_sub(Span::from_micros(1)));
        drop(reservation);
        let step = Span::from_micros(wait.as_micros() / 3);
        assert_alike((&gate, &clock), (&twin, &its_clock), step, rule);
    }
}

// T11.
#[test]
fn a_reservation_dropped_when_it_is_due_is_spent() {
    for rule in AWAITED {
        let (gate, clock, wait) = exhausted(rule);
        let (twin, its_clock, _) = exhausted(rule);
        let reservation = gate.reserve().unwrap();
        clock.advance(wait);
        drop(reservation);
        twin.reserve().unwrap().commit();
        let step = Span::from_micros(wait.as_micros() / 3);
        assert_alike((&gate, &clock), (&twin, &its_clock), step, rule);
    }
}

// A9.
#[test]
fn a_reservation_that_is_committed_is_spent_before_it_is_due() {
    for rule in AWAITED {
        let (gate, _, wait) = exhausted(rule);
        gate.reserve().unwrap().commit();
        let next = gate.reserve().unwrap().wait();
        assert!(next >= wait, "{rule}: not given back");
        let (twin, ..) = exhausted(rule);
        let held = twin.reserve().unwrap();
        assert_eq!(twin.reserve().unwrap().wait(), next, "{rule}: as if it were held");
        drop(held);
    }
}

/// Inserts other keys, so that the store sweeps and evicts the idle ones.
fn evict_idle_keys(limiter: &Limiter<ManualClock>) {
    for other in 0..3_000_u32 {
        let _ = limiter.check(&("other", other));
    }
}

// T11.
/// A place in line is named by a number. Here two of different lives of a key have the same one.
#[test]
fn a_reservation_from_before_an_eviction_refunds_no_other_request() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock("1/s".parse().unwrap(), clock.clone());
    let _ = limiter.check("alice");
    let old = limiter.reserve("alice").unwrap();
    clock.advance(Span::from_secs(10));
    assert_eq!(limiter.check_n("alice", 0).remaining, 1, "due and past: alice is at rest");
    evict_idle_keys(&limiter);

    let _ = limiter.check("alice");
    let new = limiter.reserve("alice").unwrap();
    drop(old);
    assert_eq!(new.wait(), Span::from_secs(1));
    let third = limiter.reserve("alice").unwrap().wait();
    assert_eq!(third, Span::from_secs(2), "the second one's turn is still taken");
}

// T11.
#[test]
fn a_reservation_at_a_gate_refunds_no_other_request() {
    let (gate, clock) = gate("1/s");
    let _ = gate.check();
    let old = gate.reserve().unwrap();
    clock.advance(Span::from_secs(10));
    let _ = gate.check();
    let new = gate.reserve().unwrap();
    drop(old);
    assert_eq!(new.wait(), Span::from_secs(1));
    assert_eq!(gate.reserve().unwrap().wait(), Span::from_secs(2));
}

// T11.
#[test]
fn two_reservations_dropped_in_a_row_are_refunded_once_each() {
    for rule in AWAITED {
        let (gate, _, wait) = exhausted(rule);
        for _ in 0..50 {
            let pair = [gate.reserve().unwrap(), gate.reserve().unwrap()];
            drop(pair);
            assert_eq!(gate.reserve().as_ref().map(Reservation::wait).unwrap(), wait, "{rule}");
        }
    }
}

// A11.
#[test]
fn a_turn_under_a_concurrency_limit_holds_nothing() {
    let (gate, _) = gate("concurrency 1");
    let turn = gate.reserve().unwrap();
    assert_eq!((turn.wait(), gate.check_n(0).remaining), (Span::ZERO, 1));
    let _held = gate.try_acquire().unwrap();
    assert!(gate.reserve().is_err(), "it knows no times");
}

#[test]
fn a_reservation_tells_when_all_is_back_from_when_it_was_made() {
    let (gate, clock) = gate("1/s burst 2");
    let _ = gate.check_n(2);
    let turns = [1, 2, 3].map(|_| gate.reserve().unwrap());
    for (turn, reset_s) in turns.iter().zip([3, 4, 5]) {
        assert_eq!(turn.decision().reset_after, Span::from_secs(reset_s));
    }
    clock.advance(Span::from_secs(3));
    assert_eq!(gate.check_n(0).reset_after, Span::from_secs(2));
}
