//! Waiting for rates and for permits through a real Redis: timeouts, cancellation, and what is left behind.

use std::time::Duration;
use tidegate::Verdict;
use tidegate_redis::{OnError, RedisLimiter, RedisStore, Settings};
use tidegate_testbed::RedisServer;
use tokio::time::{Instant, sleep};

const TIMEOUT: Duration = Duration::from_secs(20);

async fn store(server: &RedisServer) -> RedisStore {
    let address = server.url().parse().expect("it is an address");
    RedisStore::connect_with(&address, Settings::default().deadline(TIMEOUT)).await
}

async fn limiter(server: &RedisServer, rule: &str) -> RedisLimiter {
    let rule = rule.parse().expect("it is a rule");
    store(server).await.limiter("limit", rule).expect("Redis can count it")
}

/// Waits until the condition holds.
async fn becomes(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let ends = Instant::now() + TIMEOUT;
    while !holds().await {
        assert!(Instant::now() < ends, "not within {TIMEOUT:?}: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

async fn remaining(limiter: &RedisLimiter) -> u64 {
    limiter.request("key").cost(0).peek().await.expect("Redis answers").remaining
}

#[tokio::test]
async fn a_denied_request_waits_for_its_rate() {
    let server = RedisServer::start();
    let limiter = limiter(&server, "10/s burst 1").await;
    let began = Instant::now();
    for _ in 0..3 {
        let permit = limiter.acquire("key").await.expect("the rate admits it");
        assert!(permit.decision().is_allow());
    }
    assert!(began.elapsed() >= Duration::from_millis(195), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_request_waits_for_its_turn_under_a_rule_that_delays() {
    let server = RedisServer::start();
    let limiter = limiter(&server, "10/s queue capacity 50").await;
    let began = Instant::now();
    for _ in 0..3 {
        let _permit = limiter.acquire("key").await.expect("there is a turn");
    }
    assert!(began.elapsed() >= Duration::from_millis(195), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_request_that_cannot_be_admitted_in_time_is_denied_at_once_and_charges_nothing() {
    let server = RedisServer::start();
    for rule in ["1/h burst 1", "1/h queue capacity 5", "1/h smooth"] {
        server.command(&["FLUSHALL"]);
        let limiter = limiter(&server, rule).await;
        assert!(limiter.check("key").await.is_allow(), "`{rule}`");
        let before = limiter.request("key").peek().await.expect("Redis answers");
        let began = Instant::now();
        let request = limiter.request("key").within(Duration::from_secs(60));
        assert!(request.acquire().await.is_err(), "`{rule}`");
        assert!(
            request.check().await.is_deny() && request.try_acquire().await.is_err(),
            "`{rule}`"
        );
        assert!(began.elapsed() < TIMEOUT, "`{rule}`");
        // Within less time than one request takes, the refill does not show.
        becomes("the charge is refunded", async || {
            let after = limiter.request("key").peek().await.expect("Redis answers");
            let wait = |verdict| match verdict {
                Verdict::Wait(wait) => wait.as_duration(),
                _ => Duration::ZERO,
            };
            wait(after.verdict) <= wait(before.verdict) && after.remaining == before.remaining
        })
        .await;
    }
}

#[tokio::test]
async fn a_cost_that_is_never_admitted_does_not_wait() {
    let server = RedisServer::start();
    for rule in ["10/s burst 5", "concurrency 5", "0/s"] {
        let limiter = limiter(&server, rule).await;
        assert!(limiter.request("key").cost(6).acquire().await.is_err(), "`{rule}`");
    }
}

#[tokio::test]
async fn a_request_waits_until_another_process_releases_its_permit() {
    let server = RedisServer::start();
    for rule in ["concurrency 1", "concurrency 1 lease 60s"] {
        server.command(&["FLUSHALL"]);
        let (one, other) = (limiter(&server, rule).await, limiter(&server, rule).await);
        let held = one.acquire("key").await.expect("it is free");
        let waiting = tokio::spawn(async move { other.acquire("key").await });
        sleep(Duration::from_millis(50)).await;
        assert!(!waiting.is_finished(), "`{rule}`: it is held");
        assert!(held.release().await.expect("Redis answers"));
        let permit = waiting.await.expect("no task panics").expect("it is free again");
        assert!(one.request("key").try_acquire().await.is_err(), "`{rule}`");
        assert!(permit.release().await.expect("Redis answers"), "`{rule}`");
    }
}

#[tokio::test]
async fn a_request_for_a_permit_gives_up_in_time() {
    let server = RedisServer::start();
    for (rule, within) in
        [("concurrency 1", Duration::from_millis(120)), ("concurrency 1 wait 120ms", TIMEOUT)]
    {
        server.command(&["FLUSHALL"]);
        let limiter = limiter(&server, rule).await;
        let held = limiter.acquire("key").await.expect("it is free");
        let began = Instant::now();
        assert!(limiter.request("key").within(within).acquire().await.is_err(), "`{rule}`");
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(120) && took < TIMEOUT, "`{rule}`: {took:?}");
        assert!(held.release().await.expect("Redis answers"));
        assert!(limiter.request("key").try_acquire().await.is_ok(), "`{rule}`");
    }
}

#[tokio::test]
async fn a_cancelled_request_gives_back_its_turn() {
    let server = RedisServer::start();
    let limiter = limiter(&server, "1/min queue capacity 5").await;
    assert!(limiter.check("key").await.is_allow());
    let before = remaining(&limiter).await;
    for _ in 0..3 {
        let waiting = tokio::time::timeout(Duration::from_millis(30), limiter.acquire("key"));
        assert!(waiting.await.is_err(), "its turn is a minute later");
    }
    becomes("all turns are given back", async || remaining(&limiter).await == before).await;
}

/// The request may be cancelled before it is sent, while it is decided, or just before the permit is returned.
#[tokio::test]
async fn a_request_that_is_cancelled_at_any_time_leaves_no_permit_behind() {
    let server = RedisServer::start();
    let limiter = limiter(&server, "concurrency 3").await;
    limiter.ready().await.expect("Redis answers");
    for after_us in (0..2_000).step_by(50) {
        let limiter = limiter.clone();
        let task = tokio::spawn(async move {
            let _permit = limiter.acquire("key").await;
            std::future::pending::<()>().await;
        });
        sleep(Duration::from_micros(after_us)).await;
        task.abort();
        assert!(task.await.is_err_and(|error| error.is_cancelled()));
    }
    becomes("every permit is released", async || remaining(&limiter).await == 3).await;
}

#[tokio::test]
async fn without_redis_the_policy_decides_each_attempt() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let rule = || "10/s burst 1".parse().expect("it is a rule");
    let build = |name: &str, on_error| store.builder(name, rule()).on_error(on_error).build();
    let denied = build("denied", OnError::Deny).expect("Redis can count it");
    let local = build("local", OnError::Local { nodes: 1 }).expect("Redis can count it");
    server.kill();
    becomes("the server is down", async || !store.health()[0].is_up).await;
    let request = denied.request("key").within(Duration::from_millis(50));
    assert!(request.acquire().await.is_err(), "the retry time is one second");
    let began = Instant::now();
    for _ in 0..2 {
        let _permit = local.acquire("key").await.expect("the share admits it");
    }
    assert!(began.elapsed() >= Duration::from_millis(95), "{:?}", began.elapsed());
}

/// A server closes a limiter that is idle, and opens it again when a request needs it.
#[tokio::test]
async fn a_limiter_is_idle_unless_it_holds_a_permit_a_lease_or_a_charge_of_its_share() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let open = |name: &str, rule: &str, has_leases| {
        let builder = store.builder(name, rule.parse().expect("it is a rule"));
        builder.lease(has_leases).build().expect("Redis can count it")
    };
    let charged = open("charged", "100/h burst 100", false);
    assert!(charged.is_idle());
    let _ = charged.check("key").await;
    assert!(!charged.is_idle(), "an outage would begin with a fresh burst");
    charged.reset("key").await.expect("Redis answers");
    becomes("idle after the reset", async || charged.is_idle()).await;

    // More permits than the share of one of a hundred nodes has.
    let rule = "concurrency 3".parse().expect("it is a rule");
    let builder = store.builder("held", rule).on_error(OnError::Local { nodes: 100 });
    let held = builder.build().expect("Redis can count it");
    let permits = [held.acquire("key").await, held.acquire("key").await];
    let [first, last] = permits.map(|permit| permit.expect("one is free"));
    first.release().await.expect("Redis answers");
    assert!(!held.is_idle());
    last.release().await.expect("Redis answers");
    becomes("idle after the release", async || held.is_idle()).await;

    let leased = open("leased", "100000/s burst 100000", true);
    becomes("it has a lease", async || {
        let _ = leased.check("key").await;
        leased.stats().lent > 0
    })
    .await;
    // The share refills in a few milliseconds, and the lease lasts longer.
    assert!(!leased.is_idle());
    becomes("idle after the lease", async || leased.is_idle()).await;
}
