//! Tests every implementation of Tidegate against one specification.
//!
//! `spec/` describes each algorithm in prose with runnable scenarios. This crate parses the scenarios and runs them
//! against the core, the library, Redis, and a server over each of its protocols.

pub mod fuzz;
pub mod implementation;
pub mod oracle;
pub mod scenario;
