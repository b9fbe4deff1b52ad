//! A narrow bucket decides exactly as its limit, and has the same state, also at every edge.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use tidegate_core::{Limit, NarrowBucket, Span, Timestamp};

fn limit(rule: &str) -> Limit {
    rule.parse().unwrap()
}

fn bucket(rule: &str) -> NarrowBucket {
    limit(rule).narrow_bucket().unwrap()
}

#[test]
fn a_narrow_bucket_decides_as_its_limit_when_the_clock_steps_back() {
    let mut random = 1_u64;
    let mut below = |end: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 32) % end
    };
    for rule in ["10/s burst 3", "7/min burst 4", "3/s", "1000000/s burst 5", "7000000/s burst 900"]
    {
        let (limit, bucket) = (limit(rule), bucket(rule));
        let burst = limit.peek(&limit.fresh(Timestamp::EPOCH), Timestamp::EPOCH, 0).limit;
        let mut now_us = 60_000_000_u64;
        let (mut wide, mut full_at) = (limit.fresh(Timestamp::EPOCH), 0);
        for turn in 0..4_000 {
            // Mostly forward by about an interval; sometimes back, by clock skew or by more.
            let reach = [3, 900, 40_000, 2_000_000][usize::try_from(below(4)).unwrap()];
            let step = below(reach);
            now_us = if below(4) == 0 { now_us.saturating_sub(step) } else { now_us + step };
            let cost = below(burst + 2);
            let expected = limit.decide(&mut wide, Timestamp::from_micros(now_us), cost);

            let now = bucket.at(Span::from_micros(now_us)).unwrap();
            if bucket.is_ahead_of_clock(full_at, now) {
                full_at = bucket.clamped(now);
            }
            let taken = bucket.take(full_at, now, cost);
            full_at = taken.unwrap_or(full_at);
            let decision = bucket.decision(full_at, now, cost, taken.is_some());
            assert_eq!(decision, expected, "{rule}: turn {turn}");
            assert_eq!([0, full_at][..], limit.write_state(&wide), "{rule}: turn {turn}");
        }
    }
}

#[test]
fn a_debt_beyond_the_burst_and_clock_skew_is_ahead_of_the_clock() {
    let bucket = bucket("1/s burst 2");
    let (now, most) = (5, 2_001_000);
    assert!(!bucket.is_ahead_of_clock(now + most, now));
    assert!(bucket.is_ahead_of_clock(now + most + 1, now));
    assert!(bucket.is_ahead_of_clock(now + 2 * most, now));
    // A cost of 0 repairs the state.
    assert_eq!(bucket.take(now + most, now, 0), Some(now + most));
    assert_eq!(bucket.take(now + most + 1, now, 0), Some(now + 2_000_000));
}

#[test]
fn a_bucket_smaller_than_clock_skew_absorbs_no_more_than_its_capacity() {
    let bucket = bucket("1000000/s burst 10");
    assert!(!bucket.is_ahead_of_clock(20, 0));
    assert!(bucket.is_ahead_of_clock(21, 0));
}

#[test]
fn an_instant_fits_up_to_half_of_a_word() {
    let bucket = bucket("1/s");
    let last = u64::MAX / 2;
    assert_eq!(bucket.at(Span::from_micros(last)), Some(last));
    assert_eq!(bucket.at(Span::from_micros(last + 1)), None);
}

#[test]
fn a_bucket_is_narrow_up_to_a_quarter_of_a_word() {
    // A quarter is the product of this period and this burst.
    let narrow = |burst: u64| limit(&format!("1/2147483647us burst {burst}")).narrow_bucket();
    assert_eq!(2_147_483_647 * 2_147_483_649_u64, u64::MAX / 4);
    assert!(narrow(2_147_483_649).is_some());
    assert!(narrow(2_147_483_650).is_none());
    assert!(
        limit("10/s leaky capacity 3").narrow_bucket().is_some(),
        "a leaky bucket is a token bucket"
    );
}

#[test]
fn a_bucket_by_the_tick_charges_ticks_up_to_its_own_capacity() {
    let bucket = bucket("1/s burst 9").by_the_tick(2_000_000);
    assert_eq!(bucket.take(0, 5, 2_000_000), Some(2_000_005));
    assert_eq!(bucket.take(3_000_005, 5, 1), None, "another request owes more than the capacity");
}
