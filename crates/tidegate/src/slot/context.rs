//! What every operation on a slot needs besides the slot.

use crate::sync::wake::WakeList;
use tidegate_core::{Limit, Timestamp};

/// The limit and the time of an operation on a slot, and the list of wakers to call after it.
pub(crate) struct DecisionContext<'a> {
    pub(crate) limit: &'a Limit,
    pub(crate) now: Timestamp,
    pub(crate) wakes: &'a mut WakeList,
}

impl<'a> DecisionContext<'a> {
    #[inline]
    pub(crate) fn new(limit: &'a Limit, now: Timestamp, wakes: &'a mut WakeList) -> Self {
        Self { limit, now, wakes }
    }
}
