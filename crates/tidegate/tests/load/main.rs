//! Load (A14): limits that adapt, traffic that is shed by what it matters, retries within a budget.
//!
//! `TIDEGATE_FULL=1` runs the tests of T13 at full size, as `cargo xtask in-flight` does.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod adaptive;
#[path = "../crew/mod.rs"]
mod crew;
mod machine;
mod permits;
mod retries;
mod shed;
#[path = "../size/mod.rs"]
mod size;
mod tree;
