//! Shared parts of the benches: traffic, tidegate and its peers behind one function type, turns, and ratios.
//!
//! Always   Nothing is prepared while time is measured: keys and their order exist before, and the measured closure is
//!          called once for thousands of decisions.
//! Always   A figure is a ratio within a round in which every limiter had a turn. See `docs/benchmarks.md`.

pub mod arguments;
pub mod clock;
pub mod counted;
pub mod entrant;
pub mod ours;
#[cfg(feature = "peers")]
pub mod peers;
pub mod plot;
pub mod ratio;
pub mod resident;
pub mod service;
pub mod step;
pub mod traffic;
pub mod turns;
pub mod zipf;
