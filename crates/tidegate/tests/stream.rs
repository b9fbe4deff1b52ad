//! Streams and consumers that keep to a limit (P4): in order, on time, nothing lost, one item held at the most.
#![cfg(all(feature = "stream", feature = "tokio"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod executor;
mod rules;

use executor::Executor;
use rules::EVERY;
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate::clock::TokioClock;
use tidegate::stream::LimitStream;
use tidegate::{Gate, Limiter, ManualClock, Span};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};

fn gate(rule: &str) -> Gate<TokioClock> {
    Gate::with_clock(rule.parse().unwrap(), TokioClock::new())
}

/// A source that counts how many items were taken from it.
struct Counted {
    next: u64,
    end: u64,
    taken: Rc<Cell<u64>>,
}

impl Counted {
    fn to(end: u64) -> (Self, Rc<Cell<u64>>) {
        let taken = Rc::new(Cell::new(0));
        (Self { next: 0, end, taken: Rc::clone(&taken) }, taken)
    }
}

impl Stream for Counted {
    type Item = u64;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<u64>> {
        if self.next == self.end {
            return Poll::Ready(None);
        }
        self.next += 1;
        self.taken.set(self.taken.get() + 1);
        Poll::Ready(Some(self.next - 1))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.end - self.next).unwrap();
        (left, Some(left))
    }
}

// P4.
#[tokio::test(start_paused = true)]
async fn items_come_in_order_and_exactly_on_time() {
    let start = Instant::now();
    let gate = gate("10/s burst 2");
    let mut items = Counted::to(6).0.limited(&gate);
    let mut times = Vec::new();
    while let Some(item) = items.next().await {
        times.push((item, start.elapsed().as_millis()));
    }
    assert_eq!(times, [(0, 0), (1, 0), (2, 100), (3, 200), (4, 300), (5, 400)]);
}

// P4.
#[tokio::test(start_paused = true)]
async fn a_cost_in_bytes_limits_bytes() {
    let start = Instant::now();
    let gate = gate("1000/s burst 1000");
    let chunks = [vec![0_u8; 1_000], vec![0; 500], vec![0; 0], vec![0; 250]];
    let mut paced = tokio_stream::iter(chunks).limited(&gate).cost(Vec::len);
    let mut times = Vec::new();
    while let Some(chunk) = paced.next().await {
        times.push((chunk.len(), start.elapsed().as_millis()));
    }
    assert_eq!(times, [(1_000, 0), (500, 500), (0, 500), (250, 750)]);
}

// P4.
#[tokio::test(start_paused = true)]
async fn an_item_larger_than_the_limit_pays_in_parts() {
    let start = Instant::now();
    let gate = gate("100/s burst 50");
    let mut paced = tokio_stream::iter([20, 430, 10]).limited(&gate).cost(|size| *size);
    let mut times = Vec::new();
    while let Some(size) = paced.next().await {
        times.push((size, start.elapsed().as_millis()));
    }
    // 50 are there; the other 400 take four seconds, and the last 10 a tenth of one.
    assert_eq!(times, [(20, 0), (430, 4_000), (10, 4_100)]);
}

// P4.
/// An item that costs more than any rule admits at once passes later, and no part of it is charged twice.
#[test]
fn every_rule_passes_every_item_eventually() {
    for rule in EVERY.into_iter().chain(["concurrency 3", "concurrency 3 wait 5ms"]) {
        let clock = ManualClock::new();
        let gate = Gate::with_clock(rule.parse().unwrap(), clock.clone());
        let limit = gate.peek().limit.min(100);
        let sizes = [1, limit, limit * 3 + 1, 1];
        let mut paced = tokio_stream::iter(sizes).limited(&gate).cost(|size| *size);
        let mut executor = Executor::new();
        executor.spawn(async move {
            let mut passed = Vec::new();
            while let Some(size) = paced.next().await {
                passed.push(size);
            }
            passed
        });
        let mut passed = executor.run();
        for _ in 0..20_000 {
            if !passed.is_empty() {
                break;
            }
            clock.advance(Span::from_secs(60));
            passed = executor.run();
        }
        assert_eq!(passed, [(0, sizes.to_vec())], "{rule}");
        assert_eq!(clock.sleepers(), 0, "{rule}");
    }
}

// P4.
#[tokio::test(start_paused = true)]
async fn at_most_one_item_is_taken_ahead() {
    let gate = gate("1/s");
    let (source, taken) = Counted::to(10);
    let mut items = source.limited(&gate);
    assert_eq!((items.next().await, taken.get()), (Some(0), 1), "none before it is asked for");
    for _ in 0..5 {
        assert!(timeout(Duration::from_millis(10), items.next()).await.is_err());
        assert_eq!(taken.get(), 2);
    }
    assert_eq!(items.next().await, Some(1));
    assert_eq!(taken.get(), 2);
}

// T13.
#[tokio::test(start_paused = true)]
async fn into_parts_returns_the_held_item_and_gives_up_its_turn() {
    let gate = gate("1/s");
    let mut items = Counted::to(5).0.limited(&gate);
    assert_eq!(items.next().await, Some(0));
    assert!(timeout(Duration::from_millis(100), items.next()).await.is_err());
    assert_eq!(gate.check().retry_after(), Some(Span::from_millis(1_900)), "the item is in line");
    let (rest, held) = items.into_parts();
    assert_eq!(held, Some(1));
    assert_eq!(gate.check().retry_after(), Some(Span::from_millis(900)));
    assert_eq!(rest.collect::<Vec<_>>().await, [2, 3, 4]);
}

// T13.
#[test]
fn a_task_that_is_dropped_with_its_stream_gives_up_its_turn() {
    let clock = ManualClock::new();
    let gate = Gate::with_clock("1/s".parse().unwrap(), clock.clone());
    let mut executor = Executor::new();
    for _ in 0..2 {
        let gate = gate.clone();
        executor.spawn(async move { Counted::to(2).0.limited(&gate).collect::<Vec<_>>().await });
    }
    assert!(executor.run().is_empty());
    assert_eq!(gate.check().retry_after(), Some(Span::from_secs(3)), "two wait");
    executor.cancel(0);
    assert_eq!(gate.check().retry_after(), Some(Span::from_secs(2)));
    clock.advance(Span::from_secs(1));
    assert!(executor.run().is_empty(), "the other one has moved up, and has one more to take");
    clock.advance(Span::from_secs(1));
    assert_eq!(executor.run(), [(1, vec![0, 1])]);
}

#[tokio::test(start_paused = true)]
async fn an_item_that_is_held_counts_in_the_size() {
    let gate = gate("1/h");
    let mut items = Counted::to(3).0.limited(&gate);
    assert_eq!(items.size_hint(), (3, Some(3)));
    items.next().await;
    assert_eq!(items.size_hint(), (2, Some(2)));
    assert!(timeout(Duration::from_secs(1), items.next()).await.is_err());
    assert_eq!(items.size_hint(), (2, Some(2)), "one is held, one is left");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_has_nothing_is_charged_nothing() {
    let gate = gate("5/h");
    let (send, receive) = mpsc::channel::<u32>(1);
    let mut items = ReceiverStream::new(receive).limited(&gate);
    assert!(timeout(Duration::from_secs(1), items.next()).await.is_err());
    assert_eq!(gate.check_n(0).remaining, 5);
    drop(send);
    assert_eq!(items.next().await, None);
    assert_eq!(gate.check_n(0).remaining, 5);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_a_limiter_is_a_limit_too() {
    let limiter = Limiter::with_clock("1/s".parse().unwrap(), TokioClock::new());
    let start = Instant::now();
    let (alice, bob) = (limiter.request("alice"), limiter.request("bob"));
    let both = tokio::join!(
        Counted::to(3).0.limited(alice).collect::<Vec<_>>(),
        Counted::to(3).0.limited(bob).collect::<Vec<_>>()
    );
    assert_eq!(both, (vec![0, 1, 2], vec![0, 1, 2]));
    assert_eq!(start.elapsed().as_secs(), 2, "each has their own");
}

// P4.
#[tokio::test(start_paused = true)]
async fn two_consumers_share_one_rate() {
    let (gate, start) = (gate("10/s paced"), Instant::now());
    let handled = Cell::new(0);
    let consumer = || {
        let source = Counted::to(10).0;
        source.limited(&gate).consume(async |_| handled.set(handled.get() + 1))
    };
    tokio::join!(consumer(), consumer());
    assert_eq!(handled.get(), 20);
    assert_eq!(start.elapsed().as_millis(), 1_900);
}

// P4.
#[tokio::test(start_paused = true)]
async fn a_queue_is_consumed_at_a_steady_rate_by_a_bounded_number_of_handlers() {
    for (at_once, last_ms) in [(1, 3_000), (2, 1_600), (3, 1_200), (100, 1_200)] {
        let (gate, start) = (gate("10/s paced"), Instant::now());
        let (send, receive) = mpsc::channel(100);
        for order in 0..10 {
            send.send(order).await.unwrap();
        }
        drop(send);
        let (inside, most) = (Cell::new(0_usize), Cell::new(0));
        let work = async |_order: i32| {
            inside.set(inside.get() + 1);
            most.set(inside.get().max(most.get()));
            tokio::time::sleep(Duration::from_millis(300)).await;
            inside.set(inside.get() - 1);
        };
        ReceiverStream::new(receive).limited(&gate).consume(work).at_once(at_once).await;
        let (most, elapsed_ms) = (most.get(), start.elapsed().as_millis());
        assert!(most <= at_once, "{most} at once");
        assert_eq!(elapsed_ms, last_ms, "{at_once} at once");
    }
}

// P4.
#[tokio::test(start_paused = true)]
async fn a_consumer_limited_by_bytes_gets_each_message_when_its_bytes_are_paid() {
    let (gate, start) = (gate("1000/s burst 1000"), Instant::now());
    let (source, taken) = Counted::to(5);
    // By its number: the third is larger than all that the limit admits at once, and the fourth is empty.
    let bytes =
        |message: &u64| [1_000_usize, 500, 2_500, 0, 250][usize::try_from(*message).unwrap()];
    let handled = Cell::new(Vec::new());
    let work = async |message| {
        let mut so_far = handled.take();
        so_far.push((message, start.elapsed().as_millis()));
        handled.set(so_far);
    };
    let mut consumer = source.limited(&gate).cost(bytes).consume(work).at_once(3);
    assert!(timeout(Duration::from_millis(2_900), &mut consumer).await.is_err());
    assert_eq!(taken.get(), 3, "what is not paid for stays in the queue, but for one");
    consumer.await;
    let all = [(0, 0), (1, 500), (2, 3_000), (3, 3_000), (4, 3_250)];
    assert_eq!(handled.take(), all);
}

// P4.
#[tokio::test(start_paused = true)]
async fn a_consumer_with_the_maximum_of_running_handlers_takes_no_item() {
    let gate = gate("1000/s");
    let (source, taken) = Counted::to(10);
    let mut consumer = source.limited(&gate).consume(|_| std::future::pending()).at_once(2);
    assert!(timeout(Duration::from_secs(1), &mut consumer).await.is_err());
    assert_eq!(taken.get(), 2);
    assert_eq!(gate.check_n(0).remaining, 1_000, "two were charged, and have come back");
}

// T13.
#[tokio::test(start_paused = true)]
async fn a_stopped_consumer_finishes_its_handlers_and_returns_the_rest() {
    let gate = gate("1/s");
    let done = Cell::new(0);
    let work = async |_| {
        tokio::time::sleep(Duration::from_millis(700)).await;
        done.set(done.get() + 1);
    };
    let mut consumer = Counted::to(5).0.limited(&gate).consume(work).at_once(2);
    assert!(timeout(Duration::from_millis(1_500), &mut consumer).await.is_err());
    assert_eq!(done.get(), 1, "the second has been at work for half a second");
    consumer.stop();
    (&mut consumer).await;
    assert_eq!(done.get(), 2);
    let (rest, held) = consumer.into_parts();
    assert_eq!(held, Some(2));
    assert_eq!(rest.collect::<Vec<_>>().await, [3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_without_work_is_done() {
    let gate = gate("1/s");
    tokio_stream::empty::<u32>().limited(&gate).consume(async |_| unreachable!()).await;
    assert_eq!(gate.check_n(0).remaining, 1);
}

/// Its source may be one that must stay where it is.
#[tokio::test(start_paused = true)]
async fn a_source_need_not_be_movable() {
    struct Pinned(u32, std::marker::PhantomPinned);
    impl Stream for Pinned {
        type Item = u32;
        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<u32>> {
            Poll::Ready(Some(self.0))
        }
    }
    let gate = gate("1/s");
    let mut items = std::pin::pin!(Pinned(7, std::marker::PhantomPinned).limited(&gate));
    assert_eq!(poll_fn(|context| items.as_mut().poll_next(context)).await, Some(7));
}

/// The source is lent, and lives on.
#[tokio::test(start_paused = true)]
async fn dropping_a_stream_drops_its_held_item_and_into_parts_returns_it() {
    let (mut source, taken) = Counted::to(5);
    let gate = gate("1/h");
    assert!(gate.check().is_allow());
    let soon = Duration::from_millis(1);

    let mut dropped = (&mut source).limited(&gate);
    assert!(timeout(soon, dropped.next()).await.is_err(), "it waits with 0");
    drop(dropped);
    assert_eq!(taken.get(), 1, "0 is gone");

    let mut consumer = (&mut source).limited(&gate).consume(async |_: u64| unreachable!());
    assert!(timeout(soon, &mut consumer).await.is_err(), "it waits with 1");
    drop(consumer);
    assert_eq!(taken.get(), 2, "1 is gone");

    let mut apart = (&mut source).limited(&gate);
    assert!(timeout(soon, apart.next()).await.is_err(), "it waits with 2");
    assert_eq!(apart.into_parts().1, Some(2));
    let mut consumer = (&mut source).limited(&gate).consume(async |_: u64| unreachable!());
    assert!(timeout(soon, &mut consumer).await.is_err(), "it waits with 3");
    assert_eq!(consumer.into_parts().1, Some(3));

    assert_eq!(source.next().await, Some(4), "no other consumer had it");
    assert!(gate.reserve().unwrap().wait() <= Span::from_secs(3_600), "every turn was given back");
}
