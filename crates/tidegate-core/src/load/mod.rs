//! Protection against overload: adaptive concurrency, load shedding and retry budgets.

mod adaptive;
mod retries;
mod shed;

pub use adaptive::{Adaptive, Sample};
pub use retries::Retries;
pub use shed::{Level, Priority, UnknownPriority, Watermarks};
