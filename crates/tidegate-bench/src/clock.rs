//! The time, for those who measure it and for peers that want to be told it.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::time::{Instant, SystemTime};

/// For measuring.
pub fn now() -> Instant {
    Instant::now()
}

/// For peers that take the time of day as an argument.
pub fn time_of_day() -> SystemTime {
    SystemTime::now()
}
