//! Holds every implementation of Tidegate to one specification.
//!
//! `spec/` says what each algorithm answers, as prose with runnable scenarios. This crate reads them
//! and runs them against whatever decides: the core, the library, Redis, and a server over each of its wires.

pub mod fuzz;
pub mod implementation;
pub mod oracle;
pub mod scenario;
