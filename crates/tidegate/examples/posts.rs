//! S4: a user may reply 30 times a minute, 15 of them at once.
#![expect(clippy::print_stdout, reason = "a program that shows something")]

use tidegate::{Limiter, ManualClock, RuleError, Span};

fn main() -> Result<(), RuleError> {
    let clock = ManualClock::new();
    let replies = Limiter::with_clock("30/min burst 15".parse()?, clock.clone());
    println!("{}: {}\n", replies.rule(), replies.rule().explain());

    let posted = (0..20).filter(|_| replies.check("alice").is_allow()).count();
    println!("alice posts 20 replies at once: {posted} appear");

    let denied = replies.check("alice");
    if let Some(retry_after) = denied.retry_after() {
        println!("the next one may come in {retry_after}");
    }
    println!("she has all 15 again in {}\n", denied.reset_after);

    for seconds in [1, 1, 10] {
        clock.advance(Span::from_secs(seconds));
        let look = replies.check_n("alice", 0);
        println!("{seconds:>2} s later she has {} remaining", look.remaining);
    }

    println!("\na reply with three pictures costs 4: {:?}", replies.check_n("alice", 4).verdict);
    println!("a reply with twenty costs 21:        {:?}", replies.check_n("alice", 21).verdict);

    replies.refund("alice", 4);
    let remaining = replies.check_n("alice", 0).remaining;
    println!("the pictures could not be stored, so they are given back: {remaining} remaining");
    Ok(())
}
