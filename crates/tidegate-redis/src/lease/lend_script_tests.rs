//! Tests of `lend.lua` on a real server, whose time the test controls.

use super::LEASE_TIME;
use super::balance::{ClosedLease, Grant, LeaseRequest, Micros};
use super::codec::{LendReply, LendTerms};
use super::script_model::{LEASES_MAX, Ledger};
use crate::remote::rule_registry::CurrentRule;
use crate::script::codec::Operation;
use crate::{RedisLimiter, RedisStore, Settings};
use std::sync::Arc;
use std::time::Duration;
use tidegate::ManualClock;
use tidegate_core::{Decision, Span, Timestamp};
use tidegate_testbed::{Random, RedisServer};

const START: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);
const TIMEOUT: Duration = Duration::from_secs(20);
const KEY: &[u8] = b"key";
const LEASES: &str = "tg:{key}:limit#leases";

/// A limit with leases, and the number of the last one.
struct Lender {
    server: RedisServer,
    clock: ManualClock,
    limiter: RedisLimiter,
    current: Arc<CurrentRule>,
    numbers: u64,
}

impl Lender {
    async fn open(rule: &str) -> Self {
        let (server, clock) = (RedisServer::start(), ManualClock::at(START));
        let address = server.url().parse().expect("it is an address");
        let settings = Settings::default().deadline(TIMEOUT);
        let store = RedisStore::connect_with_clock(&address, settings, clock.clone()).await;
        let rule = rule.parse().expect("it is a rule");
        let limiter = store.builder("limit", rule).lease(true).build().expect("Redis can count it");
        let remote = &limiter.inner.remote;
        let current = remote.current_rule(remote.start_deadline()).await.expect("Redis answers");
        Self { server, clock, limiter, current, numbers: 0 }
    }

    fn now(&self) -> Micros {
        tidegate::Clock::now(&self.clock).as_micros()
    }

    async fn request(&self, key: &[u8], terms: &LendTerms, request: &LeaseRequest) -> LendReply {
        let lent = self.limiter.inner.remote.lend(key, terms, request).await;
        lent.expect("Redis answers")
    }

    /// Requests a lease of at most `size` and at least `at_least`.
    async fn lend(&mut self, size: u64, at_least: u64) -> Option<Grant> {
        self.numbers += 1;
        let terms = LendTerms { number: self.numbers, at_least };
        let request = LeaseRequest { closed: Vec::new(), size, sent: 0 };
        let LendReply { amount, lasts, .. } = self.request(KEY, &terms, &request).await;
        (amount > 0).then_some(Grant { number: self.numbers, amount, lasts })
    }

    /// Returns a lease.
    async fn return_lease(&self, grant: Grant, unused: u64) {
        let closed = vec![ClosedLease { number: grant.number, amount: grant.amount, unused }];
        let request = LeaseRequest { closed, size: 0, sent: 0 };
        let reply = self.request(KEY, &LendTerms { number: 0, at_least: 0 }, &request).await;
        assert_eq!(reply.amount, 0, "no lease was requested");
    }

    async fn peek(&self, key: &[u8], cost: u64) -> Decision {
        let seen = self.limiter.inner.remote.run(key, Operation::Peek, cost, None).await;
        seen.expect("Redis answers").decision
    }

    async fn remaining(&self) -> u64 {
        self.peek(KEY, 0).await.remaining
    }

    fn leases(&self) -> String {
        self.server.command(&["ZCARD", LEASES]).text()
    }
}

#[tokio::test]
async fn a_lease_is_charged_and_listed_until_it_ends() {
    let mut lender = Lender::open("10/min burst 40").await;
    assert_eq!(lender.remaining().await, 20, "half of it is reserved for leases");
    let lasts = Span::from(LEASE_TIME).as_micros();
    assert_eq!(lender.lend(8, 1).await, Some(Grant { number: 1, amount: 8, lasts }));
    assert_eq!(lender.remaining().await, 12);
    let listed = lender.server.command(&["ZRANGE", LEASES, "0", "-1", "WITHSCORES"]);
    let ends: f64 = listed.items()[1].text().parse().expect("it is a number");
    assert_eq!(ends.to_string(), (lender.now() + lasts).to_string());
}

#[tokio::test]
async fn leases_are_bounded_and_ended_leases_do_not_count() {
    let mut lender = Lender::open("1000/s burst 40").await;
    let mut lent = 0;
    for _ in 0..30 {
        lent += lender.lend(10, 1).await.map_or(0, |grant| grant.amount);
        // The charge has refilled by then, but the lease still counts.
        lender.clock.advance(Duration::from_millis(30));
    }
    assert_eq!(lent, 20);
    let decision = lender.peek(KEY, 1).await;
    assert!(decision.is_allow(), "a request without a lease is admitted: {decision:?}");
    lender.clock.advance(LEASE_TIME);
    assert!(lender.lend(10, 1).await.is_some(), "all of them have ended");
    assert_eq!(lender.leases(), "1");
}

#[tokio::test]
async fn leases_get_smaller_near_the_limit() {
    let mut lender = Lender::open("1/h burst 40").await;
    let mut amounts = Vec::new();
    while let Some(grant) = lender.lend(8, 1).await {
        amounts.push(grant.amount);
    }
    // Each lease leaves as much for others; the smallest useful one does not have to.
    assert_eq!(amounts, [8, 4, 4, 2, 1, 1]);
    assert_eq!(lender.remaining().await, 0);
}

#[tokio::test]
async fn no_lease_below_the_smallest_useful_one_is_granted() {
    let mut lender = Lender::open("1/h burst 40").await;
    assert_eq!(lender.lend(16, 16).await.map(|grant| grant.amount), Some(16));
    assert_eq!(lender.lend(8, 5).await, None, "four are remaining");
    assert_eq!(lender.remaining().await, 4, "nothing was charged");
    assert_eq!(lender.lend(8, 4).await.map(|grant| grant.amount), Some(4));
}

#[tokio::test]
async fn the_unused_part_of_a_lease_is_refunded_once() {
    let mut lender = Lender::open("1/h burst 40").await;
    let grant = lender.lend(8, 8).await.expect("it is granted");
    assert_eq!(lender.remaining().await, 12);
    lender.return_lease(grant, 5).await;
    assert_eq!((lender.remaining().await, lender.leases()), (17, "0".to_owned()));
    lender.return_lease(grant, 5).await;
    assert_eq!(lender.remaining().await, 17, "it was returned already");
}

#[tokio::test]
async fn a_lease_that_has_ended_is_not_refunded() {
    let mut lender = Lender::open("1/h burst 40").await;
    let grant = lender.lend(8, 8).await.expect("it is granted");
    lender.clock.advance(LEASE_TIME);
    lender.return_lease(grant, 8).await;
    assert_eq!(lender.remaining().await, 12);
}

#[tokio::test]
async fn a_lease_that_was_never_granted_is_not_refunded() {
    let mut lender = Lender::open("1/h burst 40").await;
    let grant = lender.lend(8, 8).await.expect("it is granted");
    for other in [Grant { number: 77, ..grant }, Grant { amount: 9, ..grant }] {
        lender.return_lease(other, 8).await;
        assert_eq!((lender.remaining().await, lender.leases()), (12, "1".to_owned()));
    }
}

#[tokio::test]
async fn a_lease_of_a_window_ends_with_it() {
    let mut lender = Lender::open("40/10s fixed").await;
    let lasts = Span::from(LEASE_TIME).as_micros();
    assert_eq!(lender.lend(4, 1).await.map(|grant| grant.lasts), Some(lasts));
    let left = lender.peek(KEY, 0).await.reset_after.as_micros();
    lender.clock.advance(Span::from_micros(left - lasts / 4));
    assert_eq!(lender.lend(4, 1).await.map(|grant| grant.lasts), Some(lasts / 4));
}

#[tokio::test]
async fn the_number_of_leases_of_a_key_is_bounded() {
    let mut lender = Lender::open("1/h burst 4000").await;
    for _ in 0..LEASES_MAX {
        assert!(lender.lend(1, 1).await.is_some());
    }
    assert_eq!(lender.lend(1, 1).await, None);
    assert!(lender.peek(KEY, 1).await.is_allow(), "requests are decided without leases");
    assert_eq!(lender.leases(), LEASES_MAX.to_string());
}

/// The cost in `docs/scale.md`, measured by Redis; run it alone, built for release, with `--no-capture`.
#[tokio::test]
async fn the_cost_of_a_lease_grows_little_with_the_number_of_leases() {
    const TIMES: u64 = 500;
    let mut lender = Lender::open("1/h burst 4000").await;
    let mut each = Vec::new();
    for leases in [1, LEASES_MAX as u64] {
        while lender.leases() != (leases - 1).to_string() {
            assert!(lender.lend(1, 1).await.is_some());
        }
        let mut took_us = 0.0;
        for _ in 0..TIMES {
            lender.server.command(&["CONFIG", "RESETSTAT"]);
            let grant = lender.lend(4, 1).await.expect("there is one lease less than the maximum");
            let info = lender.server.command(&["INFO", "commandstats"]).text();
            let script = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
            let usec = script.and_then(|line| line.split_once("usec=")?.1.split(',').next());
            took_us += usec.and_then(|usec| usec.parse::<f64>().ok()).expect("it was called");
            lender.return_lease(grant, grant.amount).await;
        }
        #[expect(clippy::cast_precision_loss, reason = "it is small")]
        each.push(took_us / TIMES as f64);
    }
    println!("{:.1} us with one lease, {:.1} us with {LEASES_MAX}", each[0], each[1]);
    // A busy machine disturbs the measurement, so only gross differences fail.
    assert!(each[1] < each[0] * 20.0 + 1_000.0, "{each:?}");
}

/// By Redis's own clock: with a clock of a test, keys live a day longer.
#[tokio::test]
async fn the_list_of_leases_lives_a_second_longer_than_the_leases() {
    let server = RedisServer::start();
    let address = server.url().parse().expect("it is an address");
    let settings = Settings::default().deadline(TIMEOUT);
    let store = RedisStore::connect_with(&address, settings).await;
    for (rule, lasts_ms) in [("1/h burst 40", 1_000), ("40/300ms fixed from first", 300)] {
        server.command(&["FLUSHALL"]);
        let rule = rule.parse().expect("it is a rule");
        let limiter = store.builder("limit", rule).lease(true).build().expect("Redis can count it");
        let request = LeaseRequest { closed: Vec::new(), size: 8, sent: 0 };
        let terms = LendTerms { number: 1, at_least: 1 };
        let reply = limiter.inner.remote.lend(KEY, &terms, &request).await.expect("Redis answers");
        assert_eq!(reply.amount, 8);
        let lives: u64 = server.command(&["PTTL", LEASES]).text().parse().expect("it has an end");
        assert!((1..=lasts_ms + 1_000).contains(&lives), "`{}`: {lives}", limiter.rule());
    }
}

/// Runs random operations on one key, and compares Redis with the model.
async fn run_random_operations(lender: &Lender, seed: u64) {
    let (mut random, key) = (Random(seed), format!("key-{seed}"));
    let (limit, key) = (lender.current.codec.limit(), key.as_bytes());
    let lending = lender.current.lending.as_ref().expect("it has leases");
    let mut ledger = Ledger::new(limit, START);
    let mut grants: Vec<Grant> = Vec::new();
    for number in 1..=OPERATIONS {
        let now = lender.now();
        if random.below(4) == 0 {
            let cost = random.below(3) + 1;
            let charged = lender.limiter.inner.remote.charge(key, cost, None).await;
            let decided = limit.decide(&mut ledger.state, Timestamp::from_micros(now), cost);
            assert_eq!(charged.expect("Redis answers").decision, decided, "seed {seed}, {number}");
        } else {
            // Some of these have ended, and some were returned before.
            let mut closed = Vec::new();
            for Grant { number, amount, .. } in &grants {
                if random.below(4) == 0 {
                    let unused = random.below(amount + 1);
                    closed.push(ClosedLease { number: *number, amount: *amount, unused });
                }
            }
            let request = LeaseRequest { closed, size: random.below(30), sent: now };
            let at_least = if request.size == 0 { 0 } else { random.below(request.size) + 1 };
            let terms = LendTerms { number, at_least };
            let reply = lender.request(key, &terms, &request).await;
            let lent = ledger.lend(limit, lending, now, &terms, &request);
            let granted = (reply.amount > 0).then_some(Grant {
                number,
                amount: reply.amount,
                lasts: reply.lasts,
            });
            assert_eq!(granted, lent, "seed {seed}, {number}: {terms:?}, {request:?}");
            assert!(ledger.lent() <= lending.leased_max);
            grants.extend(lent);
        }
        let expected = limit.peek(&ledger.state, Timestamp::from_micros(now), 1);
        assert_eq!(lender.peek(key, 1).await, expected, "seed {seed}, {number}");
        let step = [0, random.below(1_000), random.below(200_000), random.below(2_000_000)];
        lender.clock.advance(Span::from_micros(step[usize::try_from(number % 4).unwrap_or(0)]));
    }
}

const OPERATIONS: u64 = 40;
const SEEDS: u64 = 10;

#[tokio::test]
async fn the_script_grants_what_the_model_grants() {
    for rule in [
        "50/s burst 100",
        "1000/min leaky capacity 60",
        "80/s fixed",
        "100/3s fixed from first",
        "200/min calendar",
    ] {
        let lender = Lender::open(rule).await;
        for seed in 0..SEEDS {
            run_random_operations(&lender, seed).await;
        }
    }
}
