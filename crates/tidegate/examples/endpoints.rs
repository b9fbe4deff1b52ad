//! S6: three endpoints that many threads call at once: five permits, a queue for three permits, and 20 calls in 2 s.
//!
//! The threads are real; time is simulated. No thread sleeps, and every run prints the same.

use std::error::Error;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use tidegate::{Clock, Gate, ManualClock, Permit, Span, Timestamp};

fn main() -> Result<(), Box<dyn Error>> {
    show(&mut io::stdout())
}

/// Runs the example, and writes what it shows to `out`.
pub(crate) fn show(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    places(out)?;
    line(out)?;
    window(out)
}

/// 10 threads and 5 permits: a thread without a permit is denied at once.
fn places(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    const THREADS: usize = 10;
    let gate = Gate::new("concurrency 5".parse()?);
    writeln!(out, "{}, {THREADS} threads at once", gate.rule())?;
    // Each thread keeps its permit until all threads have tried.
    let all_have_asked = Barrier::new(THREADS);
    let query = || {
        let permit = gate.try_acquire();
        all_have_asked.wait();
        if permit.is_ok() { "User(username=Tom)" } else { "please try later" }
    };
    count(out, run(THREADS, query))
}

/// 20 threads and 3 permits: a thread without a permit waits in the queue. The work takes 100 ms.
fn line(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    const THREADS: usize = 20;
    const WORK: Span = Span::from_millis(100);
    let clock = ManualClock::new();
    let gate = Gate::with_clock("concurrency 3".parse()?, clock.clone());
    writeln!(out, "{}, {THREADS} threads that wait; each works for {WORK}", gate.rule())?;
    let (start, inside, most) = (clock.now(), AtomicUsize::new(0), AtomicUsize::new(0));
    let (enter, entered) = mpsc::channel::<(Timestamp, Permit<ManualClock>)>();
    let times = thread::scope(|scope| {
        for _ in 0..THREADS {
            let (gate, clock, enter) = (gate.clone(), clock.clone(), enter.clone());
            let (inside, most) = (&inside, &most);
            scope.spawn(move || {
                let Ok(permit) = gate.request().block() else { return };
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let _ = enter.send((clock.now(), permit));
            });
        }
        let mut times = Vec::new();
        while times.len() < THREADS {
            let at_work: Vec<_> = entered.iter().take(3.min(THREADS - times.len())).collect();
            times.extend(at_work.iter().map(|(at, _)| at.since(start)));
            // The work ends when the main thread advances the clock.
            clock.advance(WORK);
            inside.fetch_sub(at_work.len(), Ordering::SeqCst);
        }
        times
    });
    for at_once in times.chunk_by(|one, other| one == other) {
        writeln!(out, "  at {:>5}: {} enter", at_once[0].to_string(), at_once.len())?;
    }
    writeln!(out, "  never more than {} inside\n", most.into_inner())?;
    Ok(())
}

/// 30 threads and 20 calls in 2 s: a denied call does no work. Two seconds later, 20 more are admitted.
fn window(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    const THREADS: usize = 30;
    let clock = ManualClock::new();
    let gate = Gate::with_clock("20/2s fixed".parse()?, clock.clone());
    writeln!(out, "{}, {THREADS} threads at once, and again 2s later", gate.rule())?;
    let done = AtomicUsize::new(0);
    let work = || {
        done.fetch_add(1, Ordering::SeqCst);
        "done"
    };
    let call = || gate.request().run(work).unwrap_or("limited");
    for _ in 0..2 {
        count(out, run(THREADS, call))?;
        clock.advance(Span::from_secs(2));
    }
    writeln!(out, "the work was done {} times", done.into_inner())?;
    Ok(())
}

/// Calls the endpoint from `threads` threads at the same time.
fn run(threads: usize, call: impl Fn() -> &'static str + Sync) -> Vec<&'static str> {
    let start = Barrier::new(threads);
    let call = || {
        start.wait();
        call()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(call)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

/// Writes the number of threads for each answer.
fn count(out: &mut impl Write, mut answers: Vec<&'static str>) -> Result<(), Box<dyn Error>> {
    answers.sort_unstable();
    for same in answers.chunk_by(|one, other| one == other) {
        writeln!(out, "  {:>2} threads: {}", same.len(), same[0])?;
    }
    writeln!(out)?;
    Ok(())
}
