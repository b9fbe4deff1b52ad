//! S4: a user may reply 30 times a minute, 15 of them at once.

use std::error::Error;
use std::io::{self, Write};
use tidegate::{Limiter, ManualClock, Span};

fn main() -> Result<(), Box<dyn Error>> {
    show(&mut io::stdout())
}

/// Runs the example, and writes what it shows to `out`.
pub(crate) fn show(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::new();
    let replies = Limiter::with_clock("30/min burst 15".parse()?, clock.clone());
    writeln!(out, "{}: {}\n", replies.rule(), replies.rule().explain())?;

    let posted = (0..20).filter(|_| replies.check("alice").is_allow()).count();
    writeln!(out, "alice posts 20 replies at once: {posted} appear")?;

    let denied = replies.check("alice");
    if let Some(retry_after) = denied.retry_after() {
        writeln!(out, "the next one may come in {retry_after}")?;
    }
    writeln!(out, "she has all 15 again in {}\n", denied.reset_after)?;

    for seconds in [1, 1, 10] {
        clock.advance(Span::from_secs(seconds));
        let look = replies.check_n("alice", 0);
        writeln!(out, "{seconds:>2} s later she has {} remaining", look.remaining)?;
    }

    writeln!(
        out,
        "\na reply with three pictures costs 4: {:?}",
        replies.check_n("alice", 4).verdict
    )?;
    writeln!(
        out,
        "a reply with twenty costs 21:        {:?}",
        replies.check_n("alice", 21).verdict
    )?;

    replies.refund("alice", 4);
    let remaining = replies.check_n("alice", 0).remaining;
    writeln!(
        out,
        "the pictures could not be stored, so they are given back: {remaining} remaining"
    )?;
    Ok(())
}
