//! Counters and health of one limit on this node.

mod health;
mod stats;

pub(crate) use health::{FailedRequest, HealthTracker};
pub use health::{LimitHealth, LimitState};
pub(crate) use stats::Counters;
pub use stats::RedisStats;
