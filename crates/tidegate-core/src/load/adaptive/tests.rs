//! What each law does with a round, in numbers, and how the baseline is measured.

use super::*;
use std::vec::Vec;

const fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

/// A round in which each request took this long, and the limit was used.
fn round(adaptive: &mut Adaptive, rtt: Span) -> u64 {
    let sample = Sample::success(rtt, adaptive.limit());
    for _ in 1..adaptive.size {
        let before = adaptive.limit();
        assert_eq!(adaptive.observe(sample), before, "it changes at the end of a round");
    }
    adaptive.observe(sample)
}

/// The limit after a round at 10 ms, at which nothing waits, and one at `rtt`, from a limit of 20.
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
    // Of 20 in flight wait: none, 2, 4, 6, 7, 10, 18.
    assert_eq!(limits, [26, 21, 20, 20, 19, 18, 14]);
}

#[test]
fn gradient2_lets_latency_be_half_as_long_again() {
    let limits: Vec<u64> =
        [10, 15, 20, 30, 100].map(|rtt| after(Adaptive::gradient2(), ms(rtt))).to_vec();
    assert_eq!(limits, [22, 22, 19, 17, 17]);
}

#[test]
fn aimd_goes_up_by_a_root_and_down_by_a_tenth() {
    let mut adaptive = Adaptive::aimd(ms(50)).starting_at(100);
    assert_eq!(round(&mut adaptive, ms(50)), 110);
    assert_eq!(round(&mut adaptive, ms(51)), 99);
}

#[test]
fn a_slower_answer_never_gives_more_and_a_slower_baseline_never_less() {
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
fn a_limit_of_which_less_than_half_is_used_stays() {
    for mut adaptive in [Adaptive::aimd(ms(50)), Adaptive::vegas(), Adaptive::gradient2()] {
        for _ in 0..1_000 {
            assert_eq!(adaptive.observe(Sample::success(ms(1), 9)), 20);
        }
    }
}

#[test]
fn overloads_of_one_round_bring_it_down_once() {
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
fn a_refusal_that_comes_quickly_is_not_taken_for_a_fast_service() {
    let mut adaptive = Adaptive::vegas();
    for _ in 0..1_000 {
        adaptive.observe(Sample::overload(Span::from_micros(1), 20));
    }
    assert_eq!(adaptive.baseline(), None);
    assert_eq!(adaptive.limit(), 1, "and it never is 0");
}

/// Latency of a service with four workers and 10 ms of work.
fn four_workers(in_flight: u64) -> Span {
    Span::from_micros(10_000 * in_flight.max(4) / 4)
}

#[test]
fn a_baseline_that_was_measured_in_a_queue_is_found_out_by_making_room() {
    let mut adaptive = Adaptive::vegas().starting_at(32);
    let mut limits = Vec::new();
    while limits.len() < 60 {
        let rtt = four_workers(adaptive.limit());
        limits.push(round(&mut adaptive, rtt));
    }
    assert_eq!(adaptive.baseline(), Some(ms(10)), "and not the 80 ms of the first round");
    assert!(limits.contains(&4) && adaptive.limit() <= 10, "{limits:?}");
}

#[test]
fn after_a_probe_the_limit_is_what_it_was() {
    let mut adaptive = Adaptive::gradient2().between(1..=40).starting_at(40);
    let mut limits: Vec<u64> = (0..42).map(|_| round(&mut adaptive, ms(10))).collect();
    let probe = limits.split_off(39);
    assert!(limits.iter().all(|limit| *limit == 40));
    assert_eq!(probe, [20, 20, 40], "room is made, measured, and given back");
}

#[test]
fn at_the_smallest_limit_a_slower_service_is_believed() {
    let mut adaptive = Adaptive::vegas().between(6..=100).starting_at(6);
    round(&mut adaptive, ms(10));
    for _ in 0..40 {
        round(&mut adaptive, ms(100));
    }
    assert_eq!(adaptive.baseline(), Some(ms(100)));
    assert!(round(&mut adaptive, ms(100)) > 6);
}

#[test]
fn a_service_that_is_faster_than_before_is_noticed_without_a_probe() {
    let mut adaptive = Adaptive::vegas();
    round(&mut adaptive, ms(100));
    for _ in 0..12 {
        round(&mut adaptive, ms(10));
    }
    assert!(adaptive.baseline() < Some(ms(14)), "{:?}", adaptive.baseline());
}

#[test]
fn the_ends_of_all_numbers_are_borne() {
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
