//! The algorithms of Tidegate as pure functions: exact integer arithmetic behind one interface.
//!
//! A [`Limit`] is a rule that can decide: [`Limit::decide`] takes the [`State`] of a key, the time and a cost, and returns
//! a [`Decision`]. This crate has no clock, no I/O, no threads and no dependencies. The pages in the project's `spec/` say
//! what each algorithm must decide.
//!
//! Most programs use the crate `tidegate`, which adds clocks, keys, waiting and thread safety.
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

mod algorithm;
mod codec;
mod decision;
mod limit;
mod load;
mod rate;
mod rule;
mod throttle;
mod ticket;
mod time;

pub use algorithm::{CalendarUnit, NarrowBucket, Window, Windows};
pub use codec::lua::TooLargeForLua;
pub use decision::{Decision, Denied, Retry, Verdict};
pub use limit::{Limit, State};
pub use load::{Adaptive, Level, Priority, Retries, Sample, UnknownPriority, Watermarks};
#[doc(hidden)]
pub use rule::diagnostics;
pub use rule::{LeaseTerms, ParsedRule, RuleError, RuleErrorKind};
pub use throttle::{Throttle, Throttled, ZeroRate};
pub use ticket::Ticket;
pub use time::{Span, Timestamp};
