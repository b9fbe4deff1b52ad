//! What one node keeps for one limit.

mod health;
mod stats;

pub(crate) use health::{FailedRequest, HealthTracker};
pub use health::{LimitHealth, LimitState};
pub use stats::Stats;
pub(crate) use stats::Tally;
