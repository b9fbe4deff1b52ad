//! Waiting by tokio's clock: with its time paused a limit passes in no time, exactly on time.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::clock::TokioClock;
use tidegate::{Clock, Gate, Limiter, Span};
use tokio::time::Instant;

// A9.
#[tokio::test(start_paused = true)]
async fn with_paused_time_turns_come_exactly_on_time() {
    let limiter = Limiter::with_clock("10/s paced".parse().unwrap(), TokioClock::new());
    let start = Instant::now();
    for turn in 0..50_u32 {
        drop(limiter.acquire("alice").await.unwrap());
        assert_eq!(start.elapsed(), Duration::from_millis(100) * turn);
    }
}

// A9.
#[tokio::test(start_paused = true)]
async fn with_paused_time_tasks_pass_in_order() {
    let gate = Gate::with_clock("10/s burst 2".parse().unwrap(), TokioClock::new());
    let (start, passed) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let mut tasks = Vec::new();
    for number in 0..20_u64 {
        let (gate, passed) = (gate.clone(), Arc::clone(&passed));
        tasks.push(tokio::spawn(async move {
            drop(gate.acquire().await.unwrap());
            passed.lock().unwrap().push((number, start.elapsed().as_millis()));
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let expected: Vec<_> =
        (0_u64..20).map(|n| (n, u128::from(n.saturating_sub(1)) * 100)).collect();
    assert_eq!(*passed.lock().unwrap(), expected);
}

// T13.
#[tokio::test(start_paused = true)]
async fn a_task_that_tokio_cancels_gives_up_its_turn() {
    let gate = Gate::with_clock("1/s".parse().unwrap(), TokioClock::new());
    let _ = gate.check();
    for _ in 0..10 {
        let waits = tokio::time::timeout(Duration::from_millis(10), gate.acquire()).await;
        assert!(waits.is_err(), "it would take a second");
    }
    assert_eq!(gate.check().retry_after(), Some(Span::from_millis(900)));
    let aborted = tokio::spawn(gate.acquire());
    tokio::task::yield_now().await;
    aborted.abort();
    assert!(aborted.await.unwrap_err().is_cancelled());
    assert_eq!(gate.check().retry_after(), Some(Span::from_millis(900)));
}

// T13.
#[tokio::test(start_paused = true)]
async fn a_permit_held_by_a_task_that_tokio_aborts_is_released() {
    let gate = Gate::with_clock("concurrency 1".parse().unwrap(), TokioClock::new());
    let held = gate.clone();
    let task = tokio::spawn(async move {
        let _permit = held.acquire().await.unwrap();
        std::future::pending::<()>().await;
    });
    tokio::task::yield_now().await;
    assert_eq!(gate.check_n(0).remaining, 0);
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(gate.check_n(0).remaining, 1);
}

// A9.
/// tokio's timers tick in milliseconds: a turn in between is granted late, never early.
#[tokio::test(start_paused = true)]
async fn a_turn_between_two_ticks_of_tokios_timer_is_not_early() {
    let clock = TokioClock::new();
    let gate = Gate::with_clock("7/s paced".parse().unwrap(), clock.clone());
    drop(gate.acquire().await.unwrap());
    for _ in 0..50 {
        let due = clock.now() + gate.reserve().unwrap().wait();
        drop(gate.acquire().await.unwrap());
        assert!(clock.now() >= due && clock.now().since(due) <= Span::from_millis(1));
    }
}

// T21.
/// A runtime with several threads, and real time: every task is woken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_on_several_threads_all_get_their_permit() {
    let gate = Gate::with_clock("concurrency 3".parse().unwrap(), TokioClock::new());
    let mut tasks = Vec::new();
    for number in 0..2_000_u32 {
        let gate = gate.clone();
        tasks.push(tokio::spawn(async move {
            let permit = gate.acquire();
            if number % 3 == 0 {
                // Cancelled after some polls, on whichever thread.
                let polls = number % 7;
                let _ = tokio::time::timeout(Duration::from_micros(u64::from(polls)), permit).await;
                return 0;
            }
            let permit = permit.await.unwrap();
            tokio::task::yield_now().await;
            drop(permit);
            1
        }));
    }
    let mut served = 0;
    for task in tasks {
        served += task.await.unwrap();
    }
    assert_eq!(served, 2_000 - 667);
    assert_eq!(gate.check_n(0).remaining, 3);
}
