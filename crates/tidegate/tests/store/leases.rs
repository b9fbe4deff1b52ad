//! Permits for each key: held by few, released by all, and by the end of the lease for holders that died.

use crate::size;
use std::mem;
use std::thread;
use tidegate::{Limiter, ManualClock, Permit, Span};

fn limiter(rule: &str, max_keys: usize) -> (Limiter<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    let builder = Limiter::builder(rule.parse().unwrap()).max_keys(max_keys);
    (builder.with_clock(clock.clone()), clock)
}

#[test]
fn holders_of_thousands_of_keys_that_die_give_their_places_back_after_the_lease() {
    let keys = size(5_000_u64, 500_000);
    let (limiter, clock) = limiter("concurrency 2 lease 10s", 1_000_000);
    for key in 0..keys {
        mem::forget(limiter.try_acquire(&key).unwrap());
        mem::forget(limiter.try_acquire(&key).unwrap());
        assert!(limiter.try_acquire(&key).is_err());
    }
    clock.advance(Span::from_micros(9_999_999));
    assert_eq!(limiter.sweep(), 0, "all leases are running");
    assert!((0..keys).all(|key| limiter.try_acquire(&key).is_err()));
    clock.advance(Span::from_micros(1));
    for key in 0..keys {
        let (one, two) = (limiter.try_acquire(&key).unwrap(), limiter.try_acquire(&key).unwrap());
        assert!(limiter.try_acquire(&key).is_err(), "two, and not more");
        drop((one, two));
    }
    clock.advance(Span::from_millis(1));
    limiter.sweep();
    assert_eq!(limiter.keys(), 0, "no permit is held");
}

#[test]
fn a_permit_that_outlives_its_lease_releases_no_other_permit() {
    let (limiter, clock) = limiter("concurrency 1 lease 10s", 1_000);
    let late: Vec<Permit<ManualClock>> =
        (0..500).map(|key| limiter.try_acquire(&key).unwrap()).collect();
    clock.advance(Span::from_secs(11));
    limiter.sweep();
    assert_eq!(limiter.keys(), 0, "their leases have ended, so the keys are evicted");
    let _next: Vec<Permit<ManualClock>> =
        (0..500).map(|key| limiter.try_acquire(&key).unwrap()).collect();
    drop(late);
    assert!((0..500).all(|key| limiter.try_acquire(&key).is_err()), "the next one holds it");
}

#[test]
fn a_permit_without_room_is_given_back_where_it_was_taken() {
    let (limiter, _) = limiter("concurrency 2", 1);
    let first = limiter.try_acquire("first").unwrap();
    let shared = [limiter.try_acquire("a").unwrap(), limiter.try_acquire("b").unwrap()];
    assert!(limiter.try_acquire("c").is_err(), "keys without capacity share two permits");
    drop(first);
    limiter.sweep();
    // There is capacity for one of them now: it has two permits of its own, and its shared permit is still held.
    let own = [limiter.try_acquire("a").unwrap(), limiter.try_acquire("a").unwrap()];
    assert!(limiter.try_acquire("a").is_err());
    assert!(limiter.try_acquire("c").is_err(), "the shared ones are out");
    drop(shared);
    assert!(limiter.try_acquire("a").is_err(), "they were not given back to the key's own");
    let again = [limiter.try_acquire("c").unwrap(), limiter.try_acquire("d").unwrap()];
    assert!(limiter.try_acquire("e").is_err());
    drop((own, again));
    limiter.sweep();
    assert_eq!(limiter.keys(), 0);
    assert!(limiter.try_acquire("e").is_ok());
}

#[test]
fn threads_that_take_and_give_permits_of_many_keys_leave_nothing_behind() {
    let (limiter, _) = limiter("concurrency 3", 40);
    thread::scope(|scope| {
        for seed in 0..4_u64 {
            let limiter = &limiter;
            scope.spawn(move || {
                let mut random = crate::random::Random::new(seed);
                let mut held = Vec::new();
                for _ in 0..size(20_000, 2_000_000) {
                    held.extend(limiter.try_acquire(&random.below(100)));
                    if held.len() > 50 || random.below(2) == 0 {
                        let at = usize::try_from(random.below(held.len().max(1) as u64)).unwrap();
                        if at < held.len() {
                            drop(held.swap_remove(at));
                        }
                    }
                }
            });
        }
    });
    assert!((0..100).all(|key: u64| limiter.peek(&key).remaining <= 3));
    limiter.sweep();
    assert_eq!((limiter.keys(), limiter.stats().keys), (0, 0));
    let first: Vec<_> = (0..40_u64).map(|key| limiter.try_acquire(&key).unwrap()).collect();
    let shared: Vec<_> = (40..43_u64).map(|key| limiter.try_acquire(&key).unwrap()).collect();
    assert!(limiter.try_acquire(&50_u64).is_err(), "the shared three were all free");
    drop((first, shared));
}
