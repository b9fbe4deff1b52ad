//! Waiting for other processes, which run on the real clock.
//!
//! Always   Every wait has an end, and whoever waits in vain says for what.

use std::thread;
use std::time::{Duration, Instant};

/// Nothing that is sure to happen is waited for longer.
pub const PATIENCE: Duration = Duration::from_secs(20);

const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// A pause that took longer counts as this: the machine stood still, and so did those we wait for.
const PAUSE_COUNTED_MAX: Duration = Duration::from_millis(100);

/// Looks again and again until it holds.
pub fn eventually(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let held = poll(within, || holds().then_some(()));
    assert!(held.is_some(), "not within {within:?}: {what}");
}

/// What `look` finds, as soon as it finds something; it looks at least once.
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
        thread::park_timeout(BETWEEN_LOOKS);
        waited += paused.elapsed().min(PAUSE_COUNTED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_is_seen_without_any_patience() {
        eventually("it holds", Duration::ZERO, || true);
    }

    #[test]
    #[should_panic(expected = "not within 1ms: pigs fly")]
    fn who_waits_in_vain_says_for_what() {
        eventually("pigs fly", Duration::from_millis(1), || false);
    }
}
