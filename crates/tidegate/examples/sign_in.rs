//! S3: a game gives a reward for one sign-in per player and day, where the day is Shanghai's.

use std::error::Error;
use std::io::{self, Write};
use tidegate::{Clock, Limiter, ManualClock, Span};

fn main() -> Result<(), Box<dyn Error>> {
    show(&mut io::stdout())
}

/// Runs the example, and writes what it shows to `out`.
pub(crate) fn show(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    // 2024-01-01T00:00:00Z, which is eight in the morning in Shanghai.
    let clock = ManualClock::new();
    let sign_ins = Limiter::with_clock("1/day calendar in Asia/Shanghai".parse()?, clock.clone());
    writeln!(out, "{}\n", sign_ins.rule().explain())?;

    for (hours, told) in [
        (0, "08:00 on January 1st"),
        (1, "09:00, a second try"),
        (14, "23:00, and again"),
        (1, "midnight: a new day"),
        (0, "midnight, once more"),
    ] {
        clock.advance(Span::from_secs(hours * 3_600));
        let decision = sign_ins.check("player 1");
        let answer = decision.retry_after().map_or("here is your reward".to_owned(), |span| {
            format!("come back in {}", hours_and_minutes(span))
        });
        writeln!(out, "  {told:<20}  {answer}")?;
    }

    let rewards = (0..10).filter(|_| sign_ins.check("a script").is_allow()).count();
    writeln!(out, "\nA script that signs in ten times is rewarded {rewards} time.")?;
    if let Some(window) = sign_ins.window("player 1") {
        let left = window.end.since(clock.now());
        writeln!(out, "The day is {} long.", hours_and_minutes(window.end.since(window.start)))?;
        writeln!(out, "The next one starts in {}.", hours_and_minutes(left))?;
    }
    Ok(())
}

fn hours_and_minutes(span: Span) -> String {
    let minutes = span.as_micros() / 60_000_000;
    format!("{} h {:02} min", minutes / 60, minutes % 60)
}
