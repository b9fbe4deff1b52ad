//! The first five minutes: limit by key, several limits at once, wait for a turn, hold a permit.
#![expect(clippy::print_stdout, reason = "a program that shows something")]

use std::time::Duration;
use tidegate::{Gate, Limiter, ManualClock, Span, check_all};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Your program calls `Limiter::new(rule)`; this one uses a clock that it can advance.
    let clock = ManualClock::new();

    println!("Per key: each user gets 5 a second, at most 2 at once.");
    let per_user = Limiter::with_clock("5/s burst 2".parse()?, clock.clone());
    for name in ["alice", "alice", "alice", "bob"] {
        let decision = per_user.check(name);
        match decision.into_result() {
            Ok(_) => println!("  {name}: allowed, {} remaining", decision.remaining),
            Err(denied) => println!("  {name}: {denied}"),
        }
    }

    println!("Together: the limits of the user and of the site are both charged, or neither is.");
    let site = Gate::with_clock("3/s".parse()?, clock.clone());
    let joint = check_all([per_user.request("alice"), site.request()]);
    println!("  alice: {:?}", joint.decision.verdict);
    println!("  the site still has {} remaining", site.check_n(0).remaining);

    println!(
        "A reservation: charged now, used when it is due; dropping it earlier returns its cost."
    );
    let turn = per_user.reserve("alice")?;
    println!("  alice's turn comes in {}", turn.wait());
    clock.advance(Span::from_millis(200));
    println!("  200 ms later: in {}", turn.wait());

    println!("With a deadline: a turn that would come too late is denied at once.");
    let late = per_user.request("alice").within(Duration::from_millis(10)).block();
    println!("  alice: {}", late.map_or_else(|denied| denied.to_string(), |_| "admitted".into()));

    println!("In flight: 2 at a time.");
    let downloads = Limiter::with_clock("concurrency 2".parse()?, clock);
    let first = downloads.try_acquire("alice")?;
    let second = downloads.try_acquire("alice")?;
    println!(
        "  a third: {:?}",
        downloads.try_acquire("alice").map_err(|denied| denied.to_string())
    );
    drop((first, second));
    println!("  after two have ended: {}", downloads.try_acquire("alice").is_ok());
    Ok(())
}
