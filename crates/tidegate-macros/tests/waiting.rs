//! `#[limit]` on functions that wait for their turn: by `await`, by the thread, and by the rule's own word (R2).
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate::clock::TokioClock;
use tidegate::{Denied, Gate, ManualClock, Span, limit};
use tokio::time::Instant;

fn gate(rule: &str) -> Gate<TokioClock> {
    Gate::with_clock(rule.parse().unwrap(), TokioClock::new())
}

#[limit(by = gate, wait = "1s")]
async fn patient(gate: &Gate<TokioClock>) -> Result<(), Denied> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_async_function_awaits_its_turn() {
    let (gate, start) = (gate("10/s burst 1"), Instant::now());
    for turn in 0..5 {
        patient(&gate).await.unwrap();
        assert_eq!(start.elapsed().as_millis(), turn * 100);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_would_wait_too_long_is_denied_immediately() {
    let (gate, start) = (gate("1/2s"), Instant::now());
    patient(&gate).await.unwrap();
    let denied = patient(&gate).await.unwrap_err();
    assert_eq!(denied.decision.retry_after(), Some(Span::from_secs(1)));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

// T13.
#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_refunded() {
    let gate = gate("1/s");
    patient(&gate).await.unwrap();
    for _ in 0..5 {
        let call = tokio::time::timeout(Duration::from_millis(10), patient(&gate));
        assert!(call.await.is_err());
    }
    assert_eq!(gate.check().retry_after(), Some(Span::from_millis(950)));
}

#[limit(by = gate, wait = patience)]
async fn busy(gate: &Gate<TokioClock>, patience: Duration, work: Duration) -> Result<(), Denied> {
    tokio::time::sleep(work).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_held_across_await_and_released_after_a_cancel_or_a_panic() {
    let (gate, second) = (gate("concurrency 1"), Duration::from_secs(1));
    let start = Instant::now();
    let (first, next) = tokio::join!(busy(&gate, second, second), busy(&gate, second * 2, second));
    assert!(first.is_ok() && next.is_ok());
    assert_eq!(start.elapsed(), second * 2);

    let cancelled = tokio::time::timeout(second / 2, busy(&gate, second, second)).await;
    assert!(cancelled.is_err());
    assert_eq!(gate.check_n(0).remaining, 1);

    let panicking = tokio::spawn({
        let gate = gate.clone();
        async move {
            #[limit(by = gate)]
            async fn fails(gate: &Gate<TokioClock>) -> Result<(), Denied> {
                tokio::task::yield_now().await;
                panic!("told to")
            }
            fails(&gate).await
        }
    });
    assert!(panicking.await.unwrap_err().is_panic());
    assert_eq!(gate.check_n(0).remaining, 1);
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_delays_requests_needs_no_wait_option() {
    #[limit(by = gate)]
    async fn shaped(gate: &Gate<TokioClock>) -> Result<(), Denied> {
        Ok(())
    }

    let (queue, start) = (gate("10/s queue capacity 2"), Instant::now());
    let calls = tokio::join!(shaped(&queue), shaped(&queue), shaped(&queue), shaped(&queue));
    assert_eq!(
        [calls.0.is_ok(), calls.1.is_ok(), calls.2.is_ok(), calls.3.is_ok()],
        [true, true, true, false]
    );
    assert_eq!(start.elapsed().as_millis(), 200);

    let bucket = gate("1/s");
    assert!(shaped(&bucket).await.is_ok());
    assert!(shaped(&bucket).await.is_err(), "others do not make anybody wait");
}

/// Many attributes are on functions whose future must be `Send`; a key that is not must not stop that.
#[tokio::test]
async fn no_borrow_of_a_key_lives_across_an_await() {
    #[limit("1000/s", key = std::rc::Rc::new(user), wait = "1s")]
    async fn keyed(user: u64) -> Result<u64, Denied> {
        tokio::task::yield_now().await;
        Ok(user)
    }

    async fn later() -> u64 {
        tokio::task::yield_now().await;
        0
    }

    #[limit("1/h", key = std::rc::Rc::new(user), else = later().await)]
    async fn falls_back(user: u64) -> u64 {
        user
    }

    assert_eq!(tokio::spawn(keyed(7)).await.unwrap(), Ok(7));
    for expected in [7, 0] {
        assert_eq!(tokio::spawn(falls_back(7)).await.unwrap(), expected);
    }
}

#[test]
fn a_thread_blocks_until_its_turn() {
    static CLOCK: LazyLock<ManualClock> = LazyLock::new(ManualClock::new);
    static GATE: LazyLock<Gate<ManualClock>> =
        LazyLock::new(|| Gate::with_clock("1/s".parse().unwrap(), CLOCK.clone()));
    static RUNS: AtomicU64 = AtomicU64::new(0);

    #[limit(by = GATE, wait = "1s")]
    fn work() -> Result<u64, Denied> {
        Ok(RUNS.fetch_add(1, Ordering::SeqCst))
    }

    assert_eq!(work(), Ok(0));
    let waiting = std::thread::spawn(work);
    while CLOCK.sleepers() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(RUNS.load(Ordering::SeqCst), 1, "it has not run yet");
    CLOCK.advance(Span::from_secs(1));
    assert_eq!(waiting.join().unwrap(), Ok(1));
    let reserved = GATE.reserve().unwrap();
    assert!(work().is_err(), "behind the reservation, and so two seconds away");
    drop(reserved);
}

#[test]
fn a_rule_that_delays_requests_blocks_the_thread() {
    #[limit("1000/s queue")]
    fn shaped() -> Result<(), Denied> {
        Ok(())
    }

    #[limit("concurrency 1 wait 10ms")]
    fn alone() -> Result<bool, Denied> {
        Ok(alone().is_err())
    }

    for _ in 0..3 {
        assert!(shaped().is_ok());
    }
    assert_eq!(alone(), Ok(true), "the inner call waits for 10 ms, in vain");
}

trait Fetch {
    async fn fetch(&self, path: &str) -> Result<String, Denied>;
}

struct Client;

impl Fetch for Client {
    #[limit("2/h", key = path)]
    async fn fetch(&self, path: &str) -> Result<String, Denied> {
        tokio::task::yield_now().await;
        Ok(path.to_owned())
    }
}

#[tokio::test]
async fn async_methods_of_traits_stay_async() {
    for _ in 0..2 {
        assert_eq!(Client.fetch("/a").await.unwrap(), "/a");
    }
    assert!(Client.fetch("/a").await.is_err());
    assert!(Client.fetch("/b").await.is_ok());
}
