//! Calibration of the processor's counter: how long one count lasts, by the system's monotonic clock.
//!
//! Rounding  Down: the limits' clock must never run faster than the system's, or an interval of the system's clock
//!           would admit more than the published bound.
//! Bound     Slow by at most the two [`Sighting`]s' widths over [`BASELINE`], which is 2 parts in a million when
//!           reading the system's clock takes 20 ns. If the system's clock is sped up or slowed down afterwards
//!           (NTP), the counter does not follow.

use std::time::{Duration, Instant};

/// The time between the two sightings.
const BASELINE: Duration = Duration::from_millis(20);
/// Number of attempts at a tight sighting: between its three readings, the thread may be interrupted.
const ATTEMPTS: usize = 64;

/// A reading of the counter that was made between two readings of the system's clock.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    before: Duration,
    count: u64,
    after: Duration,
}

/// Returns the microseconds in one count, times 2^64, rounded down. Takes a little longer than [`BASELINE`].
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub(super) fn us_per_count(read_counter: impl Fn() -> u64) -> u64 {
    let start = Instant::now();
    let sight = || Sighting::tightest(|| start.elapsed(), &read_counter);
    let first = sight();
    std::thread::sleep(BASELINE);
    first.us_per_count_until(sight())
}

impl Sighting {
    /// Returns the tightest of several sightings, so that an interruption between the readings does not widen it.
    fn tightest(system: impl Fn() -> Duration, counter: impl Fn() -> u64) -> Self {
        let sight = || Self { before: system(), count: counter(), after: system() };
        let attempts = (1..ATTEMPTS).map(|_| sight());
        attempts.fold(sight(), |best, next| if next.width() < best.width() { next } else { best })
    }

    fn width(self) -> Duration {
        self.after.saturating_sub(self.before)
    }

    /// Divides the shortest time that can have passed between the two sightings by the largest difference of their counts.
    /// The difference is one more than the counts show, because the later count may have been about to advance.
    fn us_per_count_until(self, later: Self) -> u64 {
        let elapsed_ns = later.before.saturating_sub(self.after).as_nanos();
        let counts = u128::from(later.count.saturating_sub(self.count)) + 1;
        let scaled = (elapsed_ns << 64) / (counts * 1_000);
        // A count lasts far less than a microsecond, so this fits.
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    proptest! {
        /// A counter of any frequency is read beside a system clock, and each reading takes a while.
        #[test]
        fn calibration_is_never_fast_and_slow_only_by_the_widths(
            counts_per_s in 10_000_000_u64..10_000_000_000,
            reading_ns in prop::collection::vec(1_u64..200, 3 * ATTEMPTS * 2),
        ) {
            let (now_ns, reading) = (Cell::new(0_u64), Cell::new(0));
            let pass = || {
                let place = reading.replace(reading.get() + 1);
                now_ns.set(now_ns.get() + reading_ns[place]);
                now_ns.get()
            };
            let system = || Duration::from_nanos(pass());
            let counter = || {
                let counts = u128::from(pass()) * u128::from(counts_per_s) / 1_000_000_000;
                u64::try_from(counts).expect("the test takes less than a second")
            };

            let first = Sighting::tightest(system, counter);
            now_ns.set(now_ns.get() + 20_000_000);
            let second = Sighting::tightest(system, counter);
            let found = first.us_per_count_until(second);

            // The calibrated clock's time after an hour of the system's clock.
            let hour_us = 3_600_000_000_u128;
            let ours_us = (u128::from(counts_per_s) * 3_600 * u128::from(found)) >> 64;
            let count_ns = u128::from(1_000_000_000 / counts_per_s) + 1;
            let uncertain_ns = (first.width() + second.width()).as_nanos() + 2 * count_ns;
            let slow_us_max = hour_us * uncertain_ns / BASELINE.as_nanos() + 1_000;
            prop_assert!(ours_us <= hour_us, "fast: {ours_us}");
            prop_assert!(hour_us - ours_us <= slow_us_max, "slow: {ours_us}, at most {slow_us_max}");
        }
    }

    #[test]
    fn one_long_interruption_does_not_widen_a_sighting() {
        let (now_ns, readings) = (Cell::new(0), Cell::new(0));
        let pass = || {
            readings.set(readings.get() + 1);
            now_ns.set(now_ns.get() + if readings.get() == 2 { 5_000_000 } else { 20 });
            now_ns.get()
        };
        let sighting = Sighting::tightest(|| Duration::from_nanos(pass()), pass);
        assert_eq!(sighting.width(), Duration::from_nanos(40));
    }
}
