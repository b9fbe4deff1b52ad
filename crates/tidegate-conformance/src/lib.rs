//! Holds every implementation of Tidegate to one specification.
//!
//! `spec/` says what each algorithm answers, as prose with runnable scenarios. This crate reads them
//! and runs them against whatever decides: today the core, tomorrow a store or a wire protocol.

pub mod fuzz;
pub mod implementation;
pub mod oracle;
pub mod scenario;
