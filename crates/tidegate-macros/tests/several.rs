//! Several `#[limit]`s on one function: all pass, or none is charged (A13).
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::LazyLock;
use std::time::Duration;
use tidegate::clock::TokioClock;
use tidegate::{Denied, Gate, ManualClock, Span, limit};

static CLOCK: LazyLock<ManualClock> = LazyLock::new(ManualClock::new);

fn gate(rule: &str) -> Gate<ManualClock> {
    Gate::with_clock(rule.parse().unwrap(), CLOCK.clone())
}

#[limit(by = first)]
#[limit(by = second, cost = cost)]
fn both(first: &Gate<ManualClock>, second: &Gate<ManualClock>, cost: u64) -> Result<(), Denied> {
    Ok(())
}

// A13.
#[test]
fn a_denial_by_one_limit_charges_none() {
    let (first, second) = (gate("5/h"), gate("3/h"));
    for _ in 0..3 {
        assert!(both(&first, &second, 1).is_ok());
    }
    for _ in 0..3 {
        assert!(both(&first, &second, 1).is_err());
    }
    assert_eq!((first.check_n(0).remaining, second.check_n(0).remaining), (2, 0));
    assert_eq!(both(&second, &first, 1).unwrap_err().decision.remaining, 0);
    assert_eq!((first.check_n(0).remaining, second.check_n(0).remaining), (2, 0));
}

// A13.
#[test]
fn a_permit_is_released_when_the_rate_denies_the_call() {
    let (places, rate) = (gate("concurrency 1"), gate("1/h"));
    assert!(both(&places, &rate, 1).is_ok());
    assert!(both(&places, &rate, 1).is_err());
    assert_eq!(places.check_n(0).remaining, 1);

    let (places, rate) = (gate("concurrency 1"), gate("9/h"));
    let held = places.try_acquire().unwrap();
    assert!(both(&places, &rate, 1).is_err() && both(&rate, &places, 1).is_err());
    assert_eq!(rate.check_n(0).remaining, 9);
    drop(held);
    assert!(both(&rate, &places, 1).is_ok());
}

#[test]
fn several_rules_of_a_function_are_decided_together_and_share_one_else() {
    #[tidegate::limit("10/h", else = false)]
    #[limit("2/h", key = user)]
    /// Between them.
    #[tidegate::limit("concurrency 1")]
    fn order(user: &str) -> bool {
        !user.is_empty()
    }

    let admitted = |user: &str| (0..5).filter(|_| order(user)).count();
    assert_eq!(admitted("alice"), 2);
    assert_eq!(admitted("bob"), 2);
    let rest: usize = ["c", "d", "e", "f"].map(admitted).iter().sum();
    assert_eq!(rest, 6, "alice's and bob's refusals cost nothing of the ten");
}

#[limit(by = slow, wait = "1s")]
#[limit(by = fast, wait = "2s")]
async fn patient(slow: &Gate<TokioClock>, fast: &Gate<TokioClock>) -> Result<(), Denied> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_several_limits_within_each_maximum_wait() {
    let gate = |rule: &str| Gate::with_clock(rule.parse().unwrap(), TokioClock::new());
    let start = tokio::time::Instant::now();
    let (slow, fast) = (gate("2/s paced"), gate("10/s paced"));
    for turn in 0..4 {
        patient(&slow, &fast).await.unwrap();
        assert_eq!(start.elapsed().as_millis(), turn * 500);
    }
    let slower = gate("1/2s");
    assert!(slower.check().is_allow());
    let denied = patient(&slower, &fast).await.unwrap_err();
    assert_eq!(denied.decision.retry_after(), Some(Span::from_secs(2)));
    assert_eq!(start.elapsed().as_millis(), 1_500, "refused at once");
    patient(&fast, &slower).await.unwrap();
    assert_eq!(start.elapsed().as_millis(), 3_500, "the second one would wait for it");
}

#[limit(by = rate, wait = "1500ms")]
#[limit(by = queue, wait = "1500ms")]
async fn in_time(rate: &Gate<TokioClock>, queue: &Gate<TokioClock>) -> Result<(), Denied> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_one_limit_shortens_the_maximum_wait_for_the_next() {
    let gate = |rule: &str| Gate::with_clock(rule.parse().unwrap(), TokioClock::new());
    let start = tokio::time::Instant::now();
    let (rate, queue) = (gate("1/s"), gate("1/s queue capacity 5"));
    in_time(&rate, &queue).await.unwrap();
    let somebody_else = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!queue.check().is_deny(), "the turn at 1 s");
    };
    let (refused, ()) = tokio::join!(in_time(&rate, &queue), somebody_else);
    assert!(refused.is_err(), "the turn at 2 s is too late");
    assert_eq!(start.elapsed().as_millis(), 1_000, "as soon as it is known");
    assert!(rate.check().is_allow(), "nothing was charged");
    assert_eq!(queue.reserve().unwrap().wait(), Span::from_secs(1), "the turn is free");
}

#[limit(by = queue)]
#[limit(by = other)]
async fn shaped(queue: &Gate<TokioClock>, other: &Gate<TokioClock>) -> Result<(), Denied> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_delays_requests_delays_the_call_beside_other_limits() {
    let gate = |rule: &str| Gate::with_clock(rule.parse().unwrap(), TokioClock::new());
    let start = tokio::time::Instant::now();
    let (queue, other) = (gate("10/s queue capacity 2"), gate("100/s"));
    for turn in 0..3 {
        shaped(&queue, &other).await.unwrap();
        assert_eq!(start.elapsed().as_millis(), turn * 100);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_while_it_waits_is_not_charged() {
    let gate = |rule: &str| Gate::with_clock(rule.parse().unwrap(), TokioClock::new());
    let start = tokio::time::Instant::now();
    let (queue, other) = (gate("10/s queue capacity 5"), gate("100/day"));
    shaped(&queue, &other).await.unwrap();
    for _ in 0..3 {
        let soon = Duration::from_millis(10);
        assert!(tokio::time::timeout(soon, shaped(&queue, &other)).await.is_err(), "it waits");
        assert_eq!(other.check_n(0).remaining, 99, "only the first call is charged");
    }
    shaped(&queue, &other).await.unwrap();
    assert_eq!(start.elapsed().as_millis(), 100, "no request is before it in the queue");
    assert_eq!(other.check_n(0).remaining, 98, "the request that has waited is charged");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_refunds_no_more_than_is_still_charged() {
    let gate = |rule: &str| Gate::with_clock(rule.parse().unwrap(), TokioClock::new());
    let (queue, other) = (gate("1/s queue capacity 5"), gate("10/s burst 10"));
    shaped(&queue, &other).await.unwrap();
    let given_up = async {
        tokio::time::sleep(Duration::from_millis(900)).await;
        assert!(other.check_n(5).is_allow(), "somebody else's");
    };
    tokio::select! {
        biased;
        _ = shaped(&queue, &other) => panic!("its turn is in a second"),
        () = given_up => {}
    }
    assert_eq!(other.check_n(0).remaining, 5, "the other's five stay charged");
}

#[test]
fn a_thread_waits_for_several_limits() {
    #[limit("1000/s paced", wait = "1s")]
    #[limit("concurrency 1", wait = "1s")]
    fn quick() -> Result<(), Denied> {
        Ok(())
    }
    for _ in 0..3 {
        assert!(quick().is_ok());
    }
}

#[test]
fn one_by_another_name_is_asked_by_itself_and_first() {
    use tidegate::limit as throttle;

    #[limit("3/h", else = "the first")]
    #[throttle("4/h", else = "the second")]
    fn renamed() -> &'static str {
        "done"
    }

    let expected = ["done", "done", "done", "the first", "the second"];
    assert_eq!(std::array::from_fn(|_| renamed()), expected);
}
