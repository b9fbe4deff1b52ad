//! Guava's `SmoothWarmingUp`, twice: with Guava's arithmetic, and without rounding.

use super::Rate;
use super::rational::{Rational, at_least_zero, micros, whole};
use tidegate_core::{Span, Timestamp};

/// The ramp without rounding, which Guava's floating point approximates.
#[derive(Clone, Debug)]
pub struct Exact {
    /// Microseconds between two permits when warm.
    stable: Rational,
    threshold: Rational,
    saved_max: Rational,
    slope: Rational,
    cool_down: Rational,
    saved: Rational,
    /// When the next request is admitted, in microseconds.
    free_at: Rational,
}

/// The state is rounded to this many binary places, because exact products would grow without bound. The error is far
/// below the microseconds that are compared with it.
const PLACES: u32 = 100;

impl Exact {
    /// Starts cold.
    pub fn new(rate: Rate, warmup: Span, cold: u64, birth: Timestamp) -> Self {
        let (stable, warmup) = (rate.pace().interval, micros(warmup));
        let cold = &stable * whole(cold);
        let threshold = &warmup / (whole(2) * &stable);
        let saved_max = &threshold + whole(2) * &warmup / (&stable + &cold);
        Self {
            slope: (cold - &stable) / (&saved_max - &threshold),
            cool_down: warmup / &saved_max,
            saved: saved_max.clone(),
            free_at: whole(birth.as_micros()),
            stable,
            threshold,
            saved_max,
        }
    }

    /// Charges `cost` permits, and returns how long a request that arrives now waits, in microseconds.
    pub fn wait_us(&mut self, now: Timestamp, cost: u64) -> Rational {
        let now = whole(now.as_micros());
        if now > self.free_at {
            let rested = (&now - &self.free_at) / &self.cool_down;
            self.saved = self.saved_max.clone().min(&self.saved + rested).to_places(PLACES);
            self.free_at.clone_from(&now);
        }
        let wait = at_least_zero(&self.free_at - now);
        let from_saved = self.saved.clone().min(whole(cost));
        let price = self.area(&from_saved) + (whole(cost) - &from_saved) * &self.stable;
        self.free_at = (&self.free_at + price).to_places(PLACES);
        self.saved -= from_saved;
        wait
    }

    /// Returns the area under the ramp between the stored permits before and after the request: a trapezium above the
    /// threshold, a rectangle below.
    fn area(&self, taken: &Rational) -> Rational {
        let left = &self.saved - taken;
        let top = at_least_zero(&self.saved - &self.threshold);
        let bottom = at_least_zero(&left - &self.threshold);
        let pace = |above: &Rational| &self.stable + above * &self.slope;
        let width = &top - &bottom;
        let ramp = &width * (pace(&top) + pace(&bottom)) / whole(2);
        ramp + (taken - width) * &self.stable
    }
}

/// Guava's own arithmetic: floating point, with every part of a wait rounded down to whole microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Guava {
    stable: f64,
    threshold: f64,
    max_permits: f64,
    slope: f64,
    cool_down: f64,
    stored: f64,
    next_free_us: u64,
}

impl Guava {
    /// Starts cold, at time zero.
    pub fn new(rate: Rate, warmup: Span, cold: u64) -> Self {
        let stable = float(rate.period.as_micros()) / float(rate.count);
        let warmup = float(warmup.as_micros());
        let cold_interval = stable * float(cold);
        let threshold = 0.5 * warmup / stable;
        let max_permits = threshold + 2.0 * warmup / (stable + cold_interval);
        Self {
            slope: (cold_interval - stable) / (max_permits - threshold),
            cool_down: warmup / max_permits,
            stored: max_permits,
            next_free_us: 0,
            stable,
            threshold,
            max_permits,
        }
    }

    /// Returns how long `reserve(permits)` makes the caller sleep, in microseconds.
    pub fn reserve_us(&mut self, now_us: u64, permits: u64) -> u64 {
        if now_us > self.next_free_us {
            let new_permits = float(now_us - self.next_free_us) / self.cool_down;
            self.stored = self.max_permits.min(self.stored + new_permits);
            self.next_free_us = now_us;
        }
        let moment_available = self.next_free_us;
        let to_spend = self.stored.min(float(permits));
        let fresh = float(permits) - to_spend;
        let wait = self.stored_to_wait(to_spend).saturating_add(cut(fresh * self.stable));
        self.next_free_us = self.next_free_us.saturating_add(wait);
        self.stored -= to_spend;
        moment_available.saturating_sub(now_us)
    }

    fn stored_to_wait(&self, mut permits: f64) -> u64 {
        let above = self.stored - self.threshold;
        let mut us = 0;
        if above > 0.0 {
            let taken = above.min(permits);
            let length = self.permits_to_time(above) + self.permits_to_time(above - taken);
            us = cut(taken * length / 2.0);
            permits -= taken;
        }
        us + cut(self.stable * permits)
    }

    fn permits_to_time(&self, permits: f64) -> f64 {
        self.stable + permits * self.slope
    }
}

#[expect(clippy::cast_precision_loss, reason = "Java's cast of a long to a double")]
fn float(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Java's cast of a double to a long, which cuts too"
)]
fn cut(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Span = Span::from_secs(1);

    /// Requests back to back: each sleeps before the next one. In hundredths of a second, as in Guava's tests.
    fn sleeps(count: u64, warmup: Span, cold: u64, calls: usize) -> Vec<u64> {
        let mut guava = Guava::new(Rate { count, period: SECOND }, warmup, cold);
        let mut now_us = 0;
        let mut sleep = || {
            let us = guava.reserve_us(now_us, 1);
            now_us += us;
            (us + 5_000) / 10_000
        };
        (0..calls).map(|_| sleep()).collect()
    }

    #[test]
    fn guavas_own_sequences_are_reproduced() {
        let four_seconds = Span::from_secs(4);
        assert_eq!(sleeps(5, SECOND, 3, 6), [0, 52, 36, 22, 20, 20]);
        assert_eq!(sleeps(2, four_seconds, 3, 6), [0, 138, 113, 88, 63, 50]);
        assert_eq!(sleeps(5, four_seconds, 10, 6), [0, 175, 126, 76, 30, 20]);
        assert_eq!(sleeps(10, SECOND, 3, 7), [0, 28, 24, 20, 16, 12, 10]);
    }

    #[test]
    fn the_exact_ramp_is_guavas_where_nothing_is_rounded() {
        let mut exact = Exact::new(Rate { count: 5, period: SECOND }, SECOND, 3, Timestamp::EPOCH);
        let waits = [0, 520_000, 880_000, 1_100_000, 1_300_000].map(whole);
        for wait in waits {
            assert_eq!(exact.wait_us(Timestamp::EPOCH, 1), wait);
        }
    }
}
