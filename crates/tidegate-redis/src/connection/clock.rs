//! Redis's clock, as far as it is known here; and another one for tests.

use std::sync::atomic::{AtomicI64, Ordering};
use tidegate::{Clock, SystemClock};
use tidegate_core::Timestamp;

/// Knows about what time it is in Redis. Only calendars are looked up by it: decisions are by Redis's own.
#[derive(Debug, Default)]
pub(crate) struct RedisClock {
    /// How far Redis's clock is ahead of ours, in microseconds.
    ahead_us: AtomicI64,
    ours: SystemClock,
    injected: Option<tidegate::ManualClock>,
}

impl RedisClock {
    /// A clock that is told.
    pub(crate) fn injected(clock: tidegate::ManualClock) -> Self {
        Self { injected: Some(clock), ..Self::default() }
    }

    /// Whether time passes as a test says, and not as it does here.
    pub(crate) fn is_injected(&self) -> bool {
        self.injected.is_some()
    }

    /// About now.
    pub(crate) fn about(&self) -> Timestamp {
        if let Some(clock) = &self.injected {
            return clock.now();
        }
        let ahead_us = self.ahead_us.load(Ordering::Relaxed);
        Timestamp::from_micros(self.ours_us().saturating_add_signed(ahead_us))
    }

    /// It was this late a moment ago.
    pub(crate) fn heard(&self, now: Timestamp) {
        let ahead = i128::from(now.as_micros()) - i128::from(self.ours_us());
        self.ahead_us.store(i64::try_from(ahead).unwrap_or(0), Ordering::Relaxed);
    }

    /// What scripts are told: the time, if a test says it.
    pub(crate) fn said(&self) -> Option<Vec<u8>> {
        let clock = self.injected.as_ref()?;
        Some(clock.now().as_micros().to_string().into_bytes())
    }

    fn ours_us(&self) -> u64 {
        self.ours.calendar_now().as_micros()
    }
}
