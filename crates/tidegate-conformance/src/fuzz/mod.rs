//! The fuzz targets as functions, so that a plain test can replay the inputs that a fuzzer has found.
//!
//! Always   A target in `fuzz/fuzz_targets` only calls its function here. Inputs that it finds are stored in `fuzz/seeds`,
//!          and `tests/seeds.rs` passes every file there to the same function.

mod config;
mod decide;
mod resp;
mod rls;
mod rule;

pub use config::config;
pub use decide::decide;
pub use resp::resp;
pub use rls::rls;
pub use rule::rule;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// A target, which panics if a check fails.
pub type Target = fn(&[u8]);

/// All targets, by the name of their file in `fuzz/fuzz_targets` and of their folder in `fuzz/seeds`.
pub const TARGETS: &[(&str, Target)] =
    &[("config", config), ("decide", decide), ("resp", resp), ("rls", rls), ("rule", rule)];

/// Returns the output of a future that never waits.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future waits"),
    }
}
