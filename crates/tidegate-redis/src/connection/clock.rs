//! An estimate of Redis's clock, and the clock that tests inject.

use std::sync::atomic::{AtomicI64, Ordering};
use tidegate::{Clock, ManualClock, SystemClock};
use tidegate_core::Timestamp;

/// Estimates Redis's clock. Only calendar windows are looked up by this estimate: decisions use Redis's own clock.
#[derive(Debug, Default)]
pub(crate) struct RedisClock {
    /// How far Redis's clock is ahead of this node's, in microseconds.
    ahead_us: AtomicI64,
    local: SystemClock,
    injected: Option<ManualClock>,
}

impl RedisClock {
    /// Returns a clock that a test controls.
    pub(crate) fn injected(clock: ManualClock) -> Self {
        Self { injected: Some(clock), ..Self::default() }
    }

    /// Returns whether a test controls this clock.
    pub(crate) fn is_injected(&self) -> bool {
        self.injected.is_some()
    }

    /// Returns roughly the time in Redis.
    pub(crate) fn estimate(&self) -> Timestamp {
        if let Some(clock) = &self.injected {
            return clock.now();
        }
        let ahead_us = self.ahead_us.load(Ordering::Relaxed);
        Timestamp::from_micros(self.local_us().saturating_add_signed(ahead_us))
    }

    /// Corrects the estimate by a time that Redis has just reported.
    pub(crate) fn synchronize(&self, now: Timestamp) {
        let ahead = i128::from(now.as_micros()) - i128::from(self.local_us());
        self.ahead_us.store(i64::try_from(ahead).unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns the time argument of scripts, if a test controls the clock.
    pub(crate) fn injected_time(&self) -> Option<Vec<u8>> {
        let clock = self.injected.as_ref()?;
        Some(clock.now().as_micros().to_string().into_bytes())
    }

    fn local_us(&self) -> u64 {
        self.local.calendar_now().as_micros()
    }
}
