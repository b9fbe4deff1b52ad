//! What the process knows about itself and shows in `/metrics` and `/readyz?verbose`.
//!
//! Always   Writing here takes no lock that a reader of `/metrics` could hold for long, and never fails.

mod log;
mod snapshot;

pub use log::{DropReason, LogDrops};
pub use snapshot::{RestoreResult, SnapshotStatus};
