//! P4: messages arrive in bursts and are handled at a steady rate, two at once: the bank accepts ten a second.
//!
//! `cargo run --example messages --features stream,tokio`. Time is tokio's, paused: a second passes in no time, and every
//! run prints the same. A program of yours calls `Gate::new(rule)` and awaits the consumer in its own runtime.

use std::cell::RefCell;
use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;
use tidegate::clock::TokioClock;
use tidegate::stream::LimitStream;
use tidegate::{Gate, RuleError};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;

/// The capacity of the queue. A sender waits while it is full.
const QUEUE: usize = 4;
/// How long the bank takes to answer.
const WORK: Duration = Duration::from_millis(150);

fn main() -> Result<(), Box<dyn Error>> {
    show(&mut io::stdout())
}

/// Runs the example, and writes what it shows to `out`.
pub(crate) fn show(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
    for line in runtime.block_on(consume())? {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

async fn consume() -> Result<Vec<String>, RuleError> {
    let gate = Gate::with_clock("10/s paced".parse()?, TokioClock::new());
    let (start, lines) = (Instant::now(), RefCell::new(vec![gate.rule().explain()]));
    let say = |what: &str, order: u32| {
        let at_ms = start.elapsed().as_millis();
        lines.borrow_mut().push(format!("{at_ms:>5} ms  order {order} {what}"));
    };

    let (send, receive) = mpsc::channel(QUEUE);
    let producer = async {
        for order in 1..=8 {
            // Waits while the queue is full, because the consumer takes a message only when it can handle it.
            if send.send(order).await.is_ok() {
                say("is in the queue", order);
            }
        }
        drop(send);
    };
    let handle = async |order: u32| {
        sleep(WORK).await;
        say("is paid", order);
    };
    let consumer = ReceiverStream::new(receive).limited(&gate).consume(handle).at_once(2);
    tokio::join!(producer, consumer);
    Ok(lines.into_inner())
}
