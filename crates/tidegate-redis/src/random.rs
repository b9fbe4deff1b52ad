//! Random numbers for pauses and names. They are not suitable for secrets.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
static DRAWN: AtomicU64 = AtomicU64::new(0);

/// Returns a number that was not drawn before.
pub(crate) fn number() -> u64 {
    SEED.hash_one(DRAWN.fetch_add(1, Ordering::Relaxed))
}

/// Returns a random duration between two.
pub(crate) fn between(short: Duration, long: Duration) -> Duration {
    let width = u64::try_from(long.saturating_sub(short).as_nanos()).unwrap_or(u64::MAX);
    short + Duration::from_nanos(number() % width.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_durations_differ_and_are_in_range() {
        let (short, long) = (Duration::from_millis(10), Duration::from_millis(20));
        let drawn: Vec<Duration> = (0..100).map(|_| between(short, long)).collect();
        assert!(drawn.iter().all(|time| (short..long).contains(time)));
        assert!(drawn.iter().any(|time| *time != drawn[0]));
        assert_eq!(between(short, short), short);
    }
}
