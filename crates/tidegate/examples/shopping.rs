//! S1: one order per user in 30 minutes. Which 30 minutes makes a difference.

use std::error::Error;
use std::io::{self, Write};
use tidegate::{Clock, Limiter, ManualClock, RuleError, Span};

const MINUTE: u64 = 60;

fn main() -> Result<(), Box<dyn Error>> {
    show(&mut io::stdout())
}

/// Runs the example, and writes what it shows to `out`.
pub(crate) fn show(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    hurry(out)?;
    for text in ["1/30min fixed", "1/30min fixed from first", "1/30min sliding-log"] {
        shop(out, text)?;
    }
    Ok(())
}

/// Ten orders at once, and one two seconds later. The clock starts at midnight.
fn hurry(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let (orders, clock) = orders("1/30min fixed")?;
    if let Some(window) = orders.window("alice") {
        let wait = window.end.since(clock.now());
        writeln!(out, "alice orders ten times; the next window begins in {wait}")?;
    }
    for number in 1..=10 {
        let answer = if orders.check("alice").is_allow() { "ordered" } else { "denied" };
        writeln!(out, "  order {number:>2}: {answer}")?;
    }
    clock.advance(Span::from_secs(2));
    let denied = orders.check("alice").is_deny();
    writeln!(out, "  2s later: {}\n", if denied { "still denied" } else { "ordered" })?;
    Ok(())
}

/// alice orders three times, bob once.
fn shop(out: &mut impl Write, text: &str) -> Result<(), Box<dyn Error>> {
    let (orders, clock) = orders(text)?;
    writeln!(out, "{}\n  {}", orders.rule(), orders.rule().explain())?;
    let mut minute = 0;
    for (at_minute, user) in [(28, "alice"), (29, "alice"), (29, "bob"), (31, "alice")] {
        clock.advance(Span::from_secs((at_minute - minute) * MINUTE));
        minute = at_minute;
        let decision = orders.check(user);
        let answer = decision.retry_after().map_or("ordered".to_owned(), |retry_after| {
            format!("denied, next order in {retry_after}")
        });
        writeln!(out, "  00:{minute:02} {user:<5} {answer}")?;
    }
    writeln!(out)?;
    Ok(())
}

fn orders(text: &str) -> Result<(Limiter<ManualClock>, ManualClock), RuleError> {
    let clock = ManualClock::new();
    Ok((Limiter::with_clock(text.parse()?, clock.clone()), clock))
}
