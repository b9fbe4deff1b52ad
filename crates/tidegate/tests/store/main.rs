//! Many keys under one limit: bounded, exact for every key, and never forgetting one in debt.
//!
//! `TIDEGATE_FULL=1` runs the tests at full size, as `cargo xtask soak` does; `TIDEGATE_CASES=n` sets
//! the number of cases of each property.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::print_stdout, reason = "what was measured is shown to who asks for it")]

#[path = "../rules/mod.rs"]
mod rules;

mod alone;
mod attack;
mod collisions;
mod expiry;
mod full;
mod leases;
mod oracle;
mod random;
mod saving;
mod threads;
mod times;
mod top;
mod trap;

/// Whether sizes are those of the catalogue, or small enough for every day.
fn size<T>(every_day: T, full: T) -> T {
    if is_full() { full } else { every_day }
}

fn is_full() -> bool {
    std::env::var_os("TIDEGATE_FULL").is_some_and(|value| value == "1")
}
