//! S1: one order per user in 30 minutes. Which 30 minutes makes a difference.
#![expect(clippy::print_stdout, reason = "a program that shows something")]

use tidegate::{Limiter, ManualClock, RuleError, Span};

const MINUTE: u64 = 60;

fn main() -> Result<(), RuleError> {
    for text in ["1/30min fixed", "1/30min fixed from first", "1/30min sliding-log"] {
        shop(text)?;
    }
    Ok(())
}

/// alice orders three times, bob once. The clock starts at midnight.
fn shop(text: &str) -> Result<(), RuleError> {
    let clock = ManualClock::new();
    let orders = Limiter::with_clock(text.parse()?, clock.clone());
    println!("{}\n  {}", orders.rule(), orders.rule().explain());
    let mut minute = 0;
    for (at_minute, user) in [(28, "alice"), (29, "alice"), (29, "bob"), (31, "alice")] {
        clock.advance(Span::from_secs((at_minute - minute) * MINUTE));
        minute = at_minute;
        let decision = orders.check(user);
        let answer = decision.retry_after().map_or("ordered".to_owned(), |retry_after| {
            format!("denied, next order in {retry_after}")
        });
        println!("  00:{minute:02} {user:<5} {answer}");
    }
    println!();
    Ok(())
}
