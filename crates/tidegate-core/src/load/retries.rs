//! A budget for retries: a share of the requests, so that a failing service is not asked ten times as
//! much as a healthy one.
//!
//! State    Requests and retries of the last window, in ten slots of time.
//! Always   In any ten slots, retries are at most the larger of `percent` of the requests and the minimum.
//!          The two are not added, so a busy client stays within its percentage to the last retry.
//! Rounding Down.

use crate::time::{Span, Timestamp};

/// How finely the window forgets. Finagle and Linkerd take ten, too.
const SLOTS: usize = 10;

/// Requests and retries of a window, and how many retries they allow.
///
/// Unless told otherwise, a tenth of the requests of the last 10 s may be retried, and never fewer than
/// one a second.
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
    /// By the number of the slot, modulo their number.
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
    /// A tenth of the requests of the last 10 s, and at least one retry a second.
    ///
    /// ```
    /// # use tidegate_core::{Retries, Timestamp};
    /// assert_eq!(Retries::new().balance(Timestamp::EPOCH), 10, "one a second, for 10 s");
    /// ```
    pub const fn new() -> Self {
        Self {
            percent: 10,
            min_per_second: 1,
            slot: Span::from_secs(1),
            slots: [Slot { requests: 0, retries: 0 }; SLOTS],
            newest: 0,
        }
    }

    /// Retries for each hundred requests; 10 unless told.
    ///
    /// ```
    /// # use tidegate_core::{Retries, Timestamp};
    /// let mut retries = Retries::new().percent(50).min_per_second(0);
    /// retries.deposit(Timestamp::EPOCH);
    /// retries.deposit(Timestamp::EPOCH);
    /// assert_eq!(retries.balance(Timestamp::EPOCH), 1);
    /// ```
    #[must_use]
    pub const fn percent(mut self, percent: u32) -> Self {
        self.percent = percent;
        self
    }

    /// Retries a second that are granted also when there are few requests; 1 unless told.
    ///
    /// ```
    /// # use tidegate_core::{Retries, Timestamp};
    /// let retries = Retries::new().min_per_second(3);
    /// assert_eq!(retries.balance(Timestamp::EPOCH), 30);
    /// ```
    #[must_use]
    pub const fn min_per_second(mut self, retries: u64) -> Self {
        self.min_per_second = retries;
        self
    }

    /// For how long a request counts; 10 s unless told. It is counted in tenths, of a microsecond at
    /// least. What was counted before is forgotten.
    ///
    /// ```
    /// # use tidegate_core::{Retries, Span, Timestamp};
    /// let retries = Retries::new().window(Span::from_secs(60));
    /// assert_eq!(retries.balance(Timestamp::EPOCH), 60);
    /// ```
    #[must_use]
    pub fn window(mut self, window: Span) -> Self {
        self.slot = Span::from_micros(window.as_micros() / SLOTS as u64).at_least_1us();
        self.slots = [Slot::default(); SLOTS];
        self
    }

    /// Counts a request that is no retry.
    ///
    /// ```
    /// # use tidegate_core::{Retries, Timestamp};
    /// let mut retries = Retries::new();
    /// retries.deposit(Timestamp::EPOCH);
    /// ```
    pub fn deposit(&mut self, now: Timestamp) {
        let slot = self.slot_at(now);
        slot.requests = slot.requests.saturating_add(1);
    }

    /// May a request be retried? If so, the retry has been counted.
    ///
    /// ```
    /// # use tidegate_core::{Retries, Timestamp};
    /// let mut retries = Retries::new().min_per_second(0);
    /// assert!(!retries.withdraw(Timestamp::EPOCH), "nothing was asked, so there is nothing to retry");
    /// ```
    pub fn withdraw(&mut self, now: Timestamp) -> bool {
        self.slot_at(now);
        if self.left() == 0 {
            return false;
        }
        let slot = self.slot_at(now);
        slot.retries = slot.retries.saturating_add(1);
        true
    }

    /// How many retries would be granted now.
    ///
    /// ```
    /// # use tidegate_core::{Retries, Timestamp};
    /// let mut retries = Retries::new();
    /// assert!(retries.withdraw(Timestamp::EPOCH));
    /// assert_eq!(retries.balance(Timestamp::EPOCH), 9);
    /// ```
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

    /// The slot of this time, after forgetting those that are no longer in the window. A clock that goes
    /// back stands still for up to a window; beyond that, everything begins anew.
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
