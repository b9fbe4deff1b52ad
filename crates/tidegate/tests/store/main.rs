//! Many keys under one limit: their number is bounded, each is exact, and none in debt is evicted.
//!
//! `TIDEGATE_FULL=1` runs the tests at full size, as `cargo xtask soak` does; `TIDEGATE_CASES=n` sets
//! the number of cases of each property.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::print_stdout, reason = "`--nocapture` shows the measurements")]

#[path = "../rules/mod.rs"]
mod rules;
#[path = "../size/mod.rs"]
mod size;

mod attack;
mod collisions;
mod expiry;
mod full;
mod leases;
mod oracle;
mod random;
mod saving;
mod subprocess;
mod threads;
mod times;
mod top;
mod trap;

use size::{is_full, size};
