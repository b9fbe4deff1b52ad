//! Properties of every law: bounds, reactions in the right direction, the ends of all numbers.

use proptest::prelude::*;
use tidegate::Span;
use tidegate::load::{Adaptive, Sample};

fn law() -> impl Strategy<Value = Adaptive> {
    prop_oneof![
        number().prop_map(|us| Adaptive::aimd(Span::from_micros(us))),
        Just(Adaptive::vegas()),
        Just(Adaptive::gradient2()),
    ]
}

/// Ordinary numbers, and the ends of all.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0_u64..100_000, 1 => any::<u64>(), 1 => Just(0), 1 => Just(u64::MAX)]
}

fn sample() -> impl Strategy<Value = Sample> {
    (number(), number(), prop::bool::weighted(0.1)).prop_map(|(us, in_flight, is_overload)| {
        let rtt = Span::from_micros(us);
        if is_overload { Sample::overload(rtt, in_flight) } else { Sample::success(rtt, in_flight) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    /// T14: the limit stays within its bounds, and so never is 0, after any samples.
    #[test]
    fn the_limit_stays_within_its_bounds(
        law in law(),
        (min, max) in (number(), number()),
        initial in number(),
        samples in prop::collection::vec(sample(), 0..2_000),
    ) {
        let mut adaptive = law.between(min..=max).starting_at(initial);
        let min = min.clamp(1, 1_000_000);
        let max = max.clamp(min, 1_000_000);
        prop_assert!((min..=max).contains(&adaptive.limit()));
        for sample in samples {
            let limit = adaptive.observe(sample);
            prop_assert!((min..=max).contains(&limit), "{limit} not in {min}..={max}");
            prop_assert_eq!(limit, adaptive.limit());
        }
    }

    /// A round with an overload never raises the limit, after any earlier samples.
    #[test]
    fn an_overload_never_raises_the_limit(
        law in law(),
        history in prop::collection::vec(sample(), 0..500),
        us in number(),
        in_flight in number(),
    ) {
        let mut adaptive = law.between(1..=40).starting_at(40);
        for sample in history {
            adaptive.observe(sample);
        }
        let before = adaptive.limit();
        let overload = Sample::overload(Span::from_micros(us), in_flight);
        // No round is longer than twice the limit, so one ends here; its change is the first.
        let changed = (0..80).map(|_| adaptive.observe(overload)).find(|limit| *limit != before);
        // A probe has halved it, perhaps several times, and gives back what was before, less a tenth.
        prop_assert!(changed.is_none_or(|limit| limit < before || limit <= 36));
    }
}
