//! The limits that each law derives from a round, and the measurement of the baseline.

use super::*;
use std::vec::Vec;

const fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

/// Observes a round in which each request took `rtt` and the whole limit was used, and returns the new limit.
fn round(adaptive: &mut Adaptive, rtt: Span) -> u64 {
    let sample = Sample::success(rtt, adaptive.limit());
    for _ in 1..adaptive.size {
        let before = adaptive.limit();
        assert_eq!(adaptive.observe(sample), before, "the limit changes at the end of a round");
    }
    adaptive.observe(sample)
}

/// Returns the limit, from a limit of 20, after a round at 10 ms without a queue and a round at `rtt`.
fn after(mut adaptive: Adaptive, rtt: Span) -> u64 {
    adaptive = adaptive.starting_at(20);
    let first = Sample::success(ms(10), 1);
    for _ in 0..20 {
        adaptive.observe(first);
    }
    assert_eq!((adaptive.limit(), adaptive.baseline()), (20, Some(ms(10))));
    round(&mut adaptive, rtt)
}

#[test]
fn vegas_keeps_a_queue_of_three_to_six() {
    let limits: Vec<u64> =
        [10, 11, 12, 14, 15, 20, 100].map(|rtt| after(Adaptive::vegas(), ms(rtt))).to_vec();
    // The queue of the 20 requests in flight: 0, 2, 4, 6, 7, 10 and 18.
    assert_eq!(limits, [26, 21, 20, 20, 19, 18, 14]);
}

#[test]
fn gradient2_accepts_a_latency_of_one_and_a_half_baselines() {
    let limits: Vec<u64> =
        [10, 15, 20, 30, 100].map(|rtt| after(Adaptive::gradient2(), ms(rtt))).to_vec();
    assert_eq!(limits, [22, 22, 19, 17, 17]);
}

#[test]
fn aimd_raises_the_limit_by_its_square_root_and_lowers_it_by_a_tenth() {
    let mut adaptive = Adaptive::aimd(ms(50)).starting_at(100);
    assert_eq!(round(&mut adaptive, ms(50)), 110);
    assert_eq!(round(&mut adaptive, ms(51)), 99);
}

#[test]
fn the_limit_falls_with_the_latency_and_rises_with_the_baseline() {
    use baseline::Latency;
    let times = [1, 2, 9, 10, 11, 15, 99, 1_000, u64::MAX / 2, u64::MAX].map(Span::from_micros);
    for law in [vegas::next, gradient2::next] {
        for limit in (1..200).chain([999, 1_000, LIMIT_MAX]) {
            for baseline in times {
                let limits = times.map(|rtt| law(limit, Latency { rtt, baseline }));
                assert!(limits.is_sorted_by(|faster, slower| faster >= slower), "{limits:?}");
            }
            for rtt in times {
                let limits = times.map(|baseline| law(limit, Latency { rtt, baseline }));
                assert!(limits.is_sorted(), "{limits:?}");
            }
        }
    }
}

#[test]
fn a_limit_does_not_change_if_less_than_half_of_it_is_used() {
    for mut adaptive in [Adaptive::aimd(ms(50)), Adaptive::vegas(), Adaptive::gradient2()] {
        for _ in 0..1_000 {
            assert_eq!(adaptive.observe(Sample::success(ms(1), 9)), 20);
        }
    }
}

#[test]
fn several_overloads_in_a_round_lower_the_limit_once() {
    for mut adaptive in [Adaptive::aimd(ms(50)), Adaptive::vegas(), Adaptive::gradient2()] {
        for number in 0..20 {
            let rtt = ms(1);
            let (good, bad) = (Sample::success(rtt, 20), Sample::overload(rtt, 20));
            adaptive.observe(if number % 2 == 0 { good } else { bad });
        }
        assert_eq!(adaptive.limit(), 18);
    }
}

#[test]
fn a_quick_rejection_does_not_count_as_a_short_latency() {
    let mut adaptive = Adaptive::vegas();
    for _ in 0..1_000 {
        adaptive.observe(Sample::overload(Span::from_micros(1), 20));
    }
    assert_eq!(adaptive.baseline(), None);
    assert_eq!(adaptive.limit(), 1, "the limit is never 0");
}

/// Returns the latency of a service with four workers whose requests take 10 ms of work.
fn four_workers(in_flight: u64) -> Span {
    Span::from_micros(10_000 * in_flight.max(4) / 4)
}

#[test]
fn a_probe_corrects_a_baseline_that_was_measured_with_a_queue() {
    let mut adaptive = Adaptive::vegas().starting_at(32);
    let mut limits = Vec::new();
    while limits.len() < 60 {
        let rtt = four_workers(adaptive.limit());
        limits.push(round(&mut adaptive, rtt));
    }
    assert_eq!(adaptive.baseline(), Some(ms(10)), "not the 80 ms of the first round");
    assert!(limits.contains(&4) && adaptive.limit() <= 10, "{limits:?}");
}

#[test]
fn a_probe_restores_the_limit() {
    let mut adaptive = Adaptive::gradient2().between(1..=40).starting_at(40);
    let mut limits: Vec<u64> = (0..42).map(|_| round(&mut adaptive, ms(10))).collect();
    let probe = limits.split_off(39);
    assert!(limits.iter().all(|limit| *limit == 40));
    assert_eq!(probe, [20, 20, 40], "the limit is halved, measured and restored");
}

#[test]
fn at_the_smallest_limit_the_measured_latency_becomes_the_baseline() {
    let mut adaptive = Adaptive::vegas().between(6..=100).starting_at(6);
    round(&mut adaptive, ms(10));
    for _ in 0..40 {
        round(&mut adaptive, ms(100));
    }
    assert_eq!(adaptive.baseline(), Some(ms(100)));
    assert!(round(&mut adaptive, ms(100)) > 6);
}

#[test]
fn the_baseline_follows_a_faster_service_without_a_probe() {
    let mut adaptive = Adaptive::vegas();
    round(&mut adaptive, ms(100));
    for _ in 0..12 {
        round(&mut adaptive, ms(10));
    }
    assert!(adaptive.baseline() < Some(ms(14)), "{:?}", adaptive.baseline());
}

#[test]
fn the_limit_stays_within_its_bounds_for_extreme_samples() {
    for mut adaptive in [Adaptive::aimd(Span::ZERO), Adaptive::vegas(), Adaptive::gradient2()] {
        adaptive = adaptive.between(0..=u64::MAX).starting_at(u64::MAX);
        assert_eq!(adaptive.limit(), LIMIT_MAX);
        let reversed = RangeInclusive::new(u64::MAX, 0);
        assert_eq!(adaptive.clone().between(reversed).limit(), LIMIT_MAX);
        adaptive = adaptive.between(1..=3);
        for sample in [Sample::success, Sample::overload] {
            for (rtt, in_flight) in [(Span::MAX, u64::MAX), (Span::ZERO, 0), (Span::MAX, 0)] {
                for _ in 0..400 {
                    assert!((1..=3).contains(&adaptive.observe(sample(rtt, in_flight))));
                }
            }
        }
    }
}
