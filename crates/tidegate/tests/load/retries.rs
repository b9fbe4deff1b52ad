//! The budget for retries (A14, T49) against a list of all that happened, and a storm that it holds.

use proptest::prelude::*;
use tidegate::load::{Retries, RetryBudget};
use tidegate::{ManualClock, Span, Timestamp};

/// What the budget should say, by looking at everything each time.
#[derive(Default)]
struct Oracle {
    requests: Vec<u64>,
    retries: Vec<u64>,
}

impl Oracle {
    fn left(&self, slot: u64, percent: usize, min: usize) -> usize {
        let live = |slots: &[u64]| slots.iter().filter(|seen| **seen + 10 > slot).count();
        (live(&self.requests) * percent / 100).max(min).saturating_sub(live(&self.retries))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn it_grants_what_a_list_of_everything_grants(
        percent in 0_u32..300,
        min_per_second in 0_u64..4,
        window_s in 1_u64..30,
        events in prop::collection::vec((0_u64..2_000, 0..4), 0..500),
    ) {
        let window = Span::from_secs(window_s);
        let mut retries =
            Retries::new().percent(percent).min_per_second(min_per_second).window(window);
        let (percent, min) =
            (usize::try_from(percent).unwrap(), usize::try_from(min_per_second * window_s).unwrap());
        let mut oracle = Oracle::default();
        let mut now = Timestamp::from_micros(1_700_000_000_000_000);
        for (ms, kind) in events {
            now = now + Span::from_millis(ms);
            let slot = now.as_micros() / (window.as_micros() / 10);
            let left = oracle.left(slot, percent, min);
            prop_assert_eq!(retries.balance(now), u64::try_from(left).unwrap());
            if kind > 0 {
                retries.deposit(now);
                oracle.requests.push(slot);
            } else {
                let granted = retries.withdraw(now);
                prop_assert_eq!(granted, left > 0);
                oracle.retries.extend(granted.then_some(slot));
            }
        }
    }
}

// T49.
#[test]
fn a_dead_service_at_1000_a_second_gets_a_tenth_more_requests_and_not_four_times_as_many() {
    let clock = ManualClock::new();
    let budget = RetryBudget::with_clock(Retries::new(), clock.clone());
    let (mut requests, mut retries) = (0_u64, 0_u64);
    for _ in 0..60_000 {
        requests += 1;
        budget.deposit();
        // It fails, and so do all three attempts to try again.
        retries += (0..3).map(|_| u64::from(budget.withdraw())).sum::<u64>();
        clock.advance(Span::from_millis(1));
        // The minimum of 10 in 10 s counts in the first tenth of a second only.
        assert!(retries <= (requests / 10).max(10), "{retries} of {requests}");
    }
    assert_eq!(retries, 6_000, "and all that the budget has is used");
}

#[test]
fn a_client_with_few_requests_may_still_retry() {
    let clock = ManualClock::new();
    let budget = RetryBudget::with_clock(Retries::new(), clock.clone());
    for _ in 0..100 {
        budget.deposit();
        assert!(budget.withdraw());
        clock.advance(Span::from_secs(1));
    }
}

#[test]
fn a_clock_that_goes_back_gives_nothing_for_a_window_and_then_begins_anew() {
    let clock = ManualClock::new();
    let budget = RetryBudget::with_clock(Retries::new(), clock.clone());
    assert_eq!((0..20).filter(|_| budget.withdraw()).count(), 10);
    let now = tidegate::Clock::now(&clock);
    clock.set(now - Span::from_secs(9));
    assert!(!budget.withdraw());
    clock.set(now - Span::from_secs(60));
    assert_eq!(budget.balance(), 10);
}

#[test]
fn the_ends_of_all_numbers_are_borne() {
    let mut retries = Retries::new().percent(u32::MAX).min_per_second(u64::MAX).window(Span::MAX);
    for now in [Timestamp::MAX, Timestamp::EPOCH, Timestamp::MAX] {
        retries.deposit(now);
        assert!(retries.withdraw(now) && retries.balance(now) > 0);
    }
    let mut none = Retries::new().percent(0).min_per_second(0).window(Span::ZERO);
    none.deposit(Timestamp::EPOCH);
    assert!(!none.withdraw(Timestamp::EPOCH));
}
