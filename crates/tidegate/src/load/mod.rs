//! Limits that follow the load: adaptive concurrency, load shedding, and a budget for retries.

mod adaptive;
mod retry_budget;
mod shed;

pub use adaptive::{AdaptiveAcquire, AdaptiveGate, AdaptivePermit};
pub use retry_budget::RetryBudget;
pub use shed::{Cause, Reading, Shed, ShedPermit, Shedder, ShedderBuilder, Signal, Unread};
