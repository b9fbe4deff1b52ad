//! Limits that follow the load: adaptive concurrency, load shedding, and retry budgets.

mod adaptive;
mod retry_budget;
mod shed;

pub use adaptive::{AdaptiveAcquire, AdaptiveGate, AdaptivePermit};
pub use retry_budget::RetryBudget;
pub use shed::{Cause, Reading, Shed, ShedPermit, Shedder, ShedderBuilder, Signal, Unread};
pub use tidegate_core::{Adaptive, Level, Priority, Retries, Sample, UnknownPriority, Watermarks};
