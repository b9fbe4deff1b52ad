//! Waits for other processes, on the system clock.
//!
//! Always   Every wait has a time limit, and a timeout names the condition.

use std::thread;
use std::time::{Duration, Instant};

/// The time limit for events that are sure to happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A pause that took longer counts as this: the machine was suspended, and so were the other processes.
const PAUSE_COUNTED_MAX: Duration = Duration::from_millis(100);

/// Waits until the condition holds, and panics with `what` if it does not hold within the time.
pub fn eventually(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let held = poll(within, || holds().then_some(()));
    assert!(held.is_some(), "timed out after {within:?}: {what}");
}

/// Calls `look`, at least once, until it returns a value or the time is over.
#[expect(clippy::disallowed_methods, reason = "other processes run on the real clock")]
pub(crate) fn poll<T>(within: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut waited = Duration::ZERO;
    loop {
        let began = Instant::now();
        let found = look();
        if found.is_some() || waited >= within {
            return found;
        }
        waited += began.elapsed();
        let paused = Instant::now();
        thread::park_timeout(POLL_INTERVAL);
        waited += paused.elapsed().min(PAUSE_COUNTED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_checked_even_without_time() {
        eventually("it holds", Duration::ZERO, || true);
    }

    #[test]
    #[should_panic(expected = "timed out after 1ms: pigs fly")]
    fn a_timeout_names_the_condition() {
        eventually("pigs fly", Duration::from_millis(1), || false);
    }
}
