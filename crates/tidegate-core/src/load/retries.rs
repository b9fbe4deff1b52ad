//! A budget for retries: a share of the requests, so that retries do not multiply the load on a failing service.
//!
//! State    Requests and retries of the last window, in ten slots of time.
//! Always   In any ten slots, retries are at most the larger of `percent` of the requests and the minimum.
//!          The two are not added, so a busy client stays exactly within its percentage.
//! Rounding Down.

use crate::time::{Span, Timestamp};

/// The number of slots in the window. Finagle and Linkerd use ten, too.
const SLOTS: usize = 10;

/// Counts the requests and retries of a sliding window, and decides how many retries they allow.
///
/// By default, a tenth of the requests of the last 10 s may be retried, and at least one a second.
///
/// ```
/// use tidegate_core::{Retries, Timestamp};
///
/// let now = Timestamp::EPOCH;
/// let mut retries = Retries::new();
/// for _ in 0..500 {
///     retries.deposit(now);
/// }
/// let granted = (0..500).filter(|_| retries.withdraw(now)).count();
/// assert_eq!(granted, 50);
/// ```
#[derive(Clone, Debug)]
pub struct Retries {
    percent: u32,
    min_per_second: u64,
    /// A tenth of the window.
    slot: Span,
    /// A ring: slot `n` is at index `n % SLOTS`.
    slots: [Slot; SLOTS],
    newest: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    requests: u64,
    retries: u64,
}

impl Default for Retries {
    fn default() -> Self {
        Self::new()
    }
}

impl Retries {
    /// Allows a tenth of the requests of the last 10 s to be retried, and at least one a second.
    pub const fn new() -> Self {
        Self {
            percent: 10,
            min_per_second: 1,
            slot: Span::from_secs(1),
            slots: [Slot { requests: 0, retries: 0 }; SLOTS],
            newest: 0,
        }
    }

    /// Sets the retries for each hundred requests. Default: 10.
    #[must_use]
    pub const fn percent(mut self, percent: u32) -> Self {
        self.percent = percent;
        self
    }

    /// Sets the retries a second that are allowed even if there are few requests. Default: 1.
    #[must_use]
    pub const fn min_per_second(mut self, retries: u64) -> Self {
        self.min_per_second = retries;
        self
    }

    /// Sets the time for which a request counts. Default: 10 s. It is divided into ten slots of at least a microsecond. Earlier
    /// counts are cleared.
    #[must_use]
    pub fn window(mut self, window: Span) -> Self {
        self.slot = Span::from_micros(window.as_micros() / SLOTS as u64).at_least_1us();
        self.slots = [Slot::default(); SLOTS];
        self
    }

    /// Counts a request that is not a retry.
    pub fn deposit(&mut self, now: Timestamp) {
        let slot = self.slot_at(now);
        slot.requests = slot.requests.saturating_add(1);
    }

    /// Returns whether a request may be retried. The retry is counted then.
    pub fn withdraw(&mut self, now: Timestamp) -> bool {
        self.slot_at(now);
        if self.left() == 0 {
            return false;
        }
        let slot = self.slot_at(now);
        slot.retries = slot.retries.saturating_add(1);
        true
    }

    /// Returns how many retries would be allowed now.
    pub fn balance(&self, now: Timestamp) -> u64 {
        let mut seen = self.clone();
        seen.slot_at(now);
        seen.left()
    }

    fn left(&self) -> u64 {
        let sum =
            |count: fn(&Slot) -> u64| self.slots.iter().map(count).fold(0, u64::saturating_add);
        let (requests, retries) = (sum(|slot| slot.requests), sum(|slot| slot.retries));
        let share = u128::from(requests) * u128::from(self.percent) / 100;
        let window_us = u128::from(self.slot.as_micros()) * SLOTS as u128;
        let min = u128::from(self.min_per_second) * window_us / 1_000_000;
        u64::try_from(share.max(min)).unwrap_or(u64::MAX).saturating_sub(retries)
    }

    /// Returns the slot of this time, after clearing the slots that have left the window. If the clock goes back by less than
    /// a window, the newest slot stays current; beyond that, all counts are cleared.
    fn slot_at(&mut self, now: Timestamp) -> &mut Slot {
        let number = now.as_micros() / self.slot.as_micros();
        let slots = SLOTS as u64;
        if number.abs_diff(self.newest) >= slots {
            self.slots = [Slot::default(); SLOTS];
            self.newest = number;
        }
        while self.newest < number {
            self.newest += 1;
            self.slots[index(self.newest)] = Slot::default();
        }
        &mut self.slots[index(self.newest)]
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number % SLOTS as u64).unwrap_or(0)
}
