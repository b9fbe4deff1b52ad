//! A place among those in flight at a shedder.
//!
//! Always   Given back exactly once, when it is dropped, whatever became of the holder.

use super::Shedder;
use crate::clock::{Clock, SystemClock};
use crate::sync::Ordering;
use std::fmt;
use tidegate_core::Priority;

/// Leave to go on, from a [`Shedder`]; counted as in flight until it is dropped.
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
#[must_use = "a permit is given back when it is dropped: write `let _permit = …`, not `let _ = …`"]
pub struct ShedPermit<C: Clock = SystemClock> {
    shedder: Shedder<C>,
    priority: Priority,
}

impl<C: Clock> ShedPermit<C> {
    pub(super) fn new(shedder: Shedder<C>, priority: Priority) -> Self {
        Self { shedder, priority }
    }

    /// The priority of the request.
    ///
    /// ```
    /// # use tidegate::load::{Priority, Shedder};
    /// let permit = Shedder::new().try_enter(Priority::Batch)?;
    /// assert_eq!(permit.priority(), Priority::Batch);
    /// # Ok::<(), tidegate::load::Shed>(())
    /// ```
    pub fn priority(&self) -> Priority {
        self.priority
    }
}

impl<C: Clock> Drop for ShedPermit<C> {
    fn drop(&mut self) {
        let before = self.shedder.inner.in_flight.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "given back once more than taken");
    }
}

impl<C: Clock> fmt::Debug for ShedPermit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShedPermit").field("priority", &self.priority).finish_non_exhaustive()
    }
}
