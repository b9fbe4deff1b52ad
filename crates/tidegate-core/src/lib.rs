//! The pure heart of Tidegate: every limiting algorithm, exact, behind one interface.
//!
//! Numbers in, decision out: a [`Limit`] (a rule that can decide) is given the [`State`] of a key,
//! the time and a cost, and answers with a [`Decision`]. There is no clock here, no I/O, no thread
//! and no dependency; what the answers must be is written in the project's `spec/`.
//!
//! Most people want the `tidegate` crate, which adds the clock, the keys, the waiting and the threads.
//!
//! ```
//! use tidegate_core::{Limit, Span, Timestamp};
//!
//! let limit: Limit = "2/s burst 3".parse()?;
//! let start = Timestamp::from_micros(0);
//! let mut alice = limit.fresh(start);
//!
//! assert!(limit.decide(&mut alice, start, 3).is_allow());
//! let denied = limit.decide(&mut alice, start, 1);
//! assert_eq!(denied.retry_after(), Some(Span::from_millis(500)));
//! assert!(limit.decide(&mut alice, start + Span::from_millis(500), 1).is_allow());
//! # Ok::<(), tidegate_core::RuleError>(())
//! ```
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod adaptive;
mod algorithm;
mod bound;
mod civil;
mod closed_set;
mod decision;
mod limit;
mod packed;
mod rate;
mod retries;
mod rule;
mod shed;
mod throttle;
mod ticket;
mod time;
mod twin;

pub use adaptive::{Adaptive, Sample};
pub use algorithm::{CalendarUnit, NarrowBucket, Window, Windows};
pub use decision::{Decision, Denied, Retry, Verdict};
pub use limit::{Limit, State};
pub use retries::Retries;
pub use rule::{Lending, Rule, RuleError, RuleErrorKind};
pub use shed::{Level, Marks, Priority, UnknownPriority};
pub use throttle::{Throttle, Throttled, ZeroRate};
pub use ticket::Ticket;
pub use time::{Span, Timestamp};
pub use twin::TooLarge;
