//! Permits of a shedder.
//!
//! Always   A permit is released exactly once: when it is dropped, whether its holder returned, failed or panicked.

use super::Shedder;
use crate::clock::{Clock, SystemClock};
use crate::sync::Ordering;
use std::fmt;
use tidegate_core::Priority;

/// The admission of a request by a [`Shedder`]; it counts as in flight until it is dropped.
///
/// ```
/// use tidegate::load::{Priority, Shedder};
///
/// let shedder = Shedder::new();
/// let permit = shedder.try_enter(Priority::Normal)?;
/// drop(permit);
/// assert_eq!(shedder.in_flight(), 0);
/// # Ok::<(), tidegate::load::Shed>(())
/// ```
#[must_use = "a permit is released when it is dropped: write `let _permit = …`, not `let _ = …`"]
pub struct ShedPermit<C: Clock = SystemClock> {
    shedder: Shedder<C>,
    priority: Priority,
}

impl<C: Clock> ShedPermit<C> {
    pub(super) fn new(shedder: Shedder<C>, priority: Priority) -> Self {
        Self { shedder, priority }
    }

    /// Returns the priority of the request.
    pub fn priority(&self) -> Priority {
        self.priority
    }
}

impl<C: Clock> Drop for ShedPermit<C> {
    fn drop(&mut self) {
        let before = self.shedder.inner.in_flight.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a permit was released twice");
    }
}

impl<C: Clock> fmt::Debug for ShedPermit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShedPermit").field("priority", &self.priority).finish_non_exhaustive()
    }
}
