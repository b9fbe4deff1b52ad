//! Many keys under one limit: bounded, exact for every key, and never forgetting one in debt.
//!
//! `TIDEGATE_FULL=1` runs the tests at full size, as `cargo xtask soak` does; `TIDEGATE_CASES=n` sets
//! the number of cases of each property.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::print_stdout, reason = "what was measured is shown to who asks for it")]

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
