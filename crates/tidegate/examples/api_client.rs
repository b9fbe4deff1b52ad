//! S2: an API admits 50 requests of each client in 10 s, evenly spaced. The client sends ten a second; five are admitted.
//!
//! `start empty` makes the limit hold from the start, and denies the first request for it. A client that prefers to wait
//! reserves its turn.

use std::error::Error;
use std::io::{self, Write};
use tidegate::{Limiter, ManualClock, Span};

fn main() -> Result<(), Box<dyn Error>> {
    show(&mut io::stdout())
}

/// Runs the example, and writes what it shows to `out`.
pub(crate) fn show(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::new();
    let api = Limiter::with_clock("50/10s start empty".parse()?, clock.clone());
    writeln!(out, "{}: {}", api.rule(), api.rule().explain())?;

    let mut total = 0;
    for second in 1..=10 {
        clock.advance(Span::from_secs(1));
        let passed = (0..10).filter(|_| api.check("client 1").is_allow()).count();
        total += passed;
        writeln!(out, "  second {second:>2}: {passed} of 10 pass")?;
    }
    writeln!(out, "  {total} in 10 s")?;

    writeln!(out, "The same client, waiting its turn:")?;
    let mut turns = Vec::new();
    for number in 1..=3 {
        let turn = api.reserve("client 1")?;
        writeln!(out, "  request {number} goes out in {}", turn.wait())?;
        turns.push(turn);
    }
    writeln!(out, "Request 1 is called off, and the others move up:")?;
    drop(turns.remove(0));
    for (number, turn) in (2..).zip(&turns) {
        writeln!(out, "  request {number} goes out in {}", turn.wait())?;
    }
    Ok(())
}
