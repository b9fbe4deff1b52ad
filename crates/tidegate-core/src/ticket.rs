//! The identity of an admission under a concurrency limit.

use crate::time::Timestamp;

/// Identifies one admission under a concurrency limit, so that it is released exactly once.
///
/// ```
/// use tidegate_core::{Limit, Timestamp};
///
/// let limit: Limit = "concurrency 1".parse()?;
/// let (now, mut state) = (Timestamp::EPOCH, limit.fresh(Timestamp::EPOCH));
/// let (_decision, ticket) = limit.enter(&mut state, now, 1);
/// assert!(limit.decide(&mut state, now, 1).is_deny());
///
/// limit.release(&mut state, ticket.expect("it was admitted"));
/// assert!(limit.decide(&mut state, now, 1).is_allow());
/// # Ok::<(), tidegate_core::RuleError>(())
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) number: u64,
    pub(crate) since: Timestamp,
}

impl Ticket {
    /// Returns two numbers that identify the ticket, to be stored beside the state.
    pub fn to_words(&self) -> [u64; 2] {
        [self.number, self.since.as_micros()]
    }

    /// Recreates a ticket from the numbers that [`to_words`](Self::to_words) returned. Releasing a ticket made from any other
    /// numbers releases nothing.
    pub fn from_words([number, since]: [u64; 2]) -> Self {
        Self { number, since: Timestamp::from_micros(since) }
    }
}
