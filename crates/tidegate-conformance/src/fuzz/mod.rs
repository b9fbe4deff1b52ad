//! What must hold for any bytes: a function for each fuzz target, so that a plain test can feed it what a search
//! has found.
//!
//! Always   A target in `fuzz/fuzz_targets` only calls its function here. What it finds is kept in `fuzz/seeds`, and
//!          `tests/seeds.rs` gives every file there to the same function.

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

/// A target: it panics if what must hold does not.
pub type Target = fn(&[u8]);

/// Every target, by the name of its file in `fuzz/fuzz_targets` and of its folder in `fuzz/seeds`.
pub const TARGETS: &[(&str, Target)] =
    &[("config", config), ("decide", decide), ("resp", resp), ("rls", rls), ("rule", rule)];

/// What a future says that has nothing to wait for.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing here makes anybody wait"),
    }
}
