//! The system clocks, for measuring and for peers that take the time as an argument.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::time::{Instant, SystemTime};

/// Returns the monotonic time, for measuring.
pub fn now() -> Instant {
    Instant::now()
}

/// Returns the wall-clock time, for peers that take it as an argument.
pub fn time_of_day() -> SystemTime {
    SystemTime::now()
}
