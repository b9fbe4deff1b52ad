//! Load (A14): limits that adapt, traffic that is shed by what it matters, retries within a budget.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod adaptive;
#[path = "../executor/mod.rs"]
mod executor;
mod machine;
mod permits;
mod retries;
mod shed;
mod tree;
