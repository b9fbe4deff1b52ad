//! `lend.lua` on a real server, with the time said by the test: what it lends, and what it takes back.

use super::LASTS;
use super::balance::{Closed, Grant, Micros, Request};
use super::codec::{Terms, Told};
use super::script_model::{LEASES_MAX, Ledger};
use crate::limiter::RedisLimiter;
use crate::remote::rule_registry::Current;
use crate::script::codec::Verb;
use crate::{RedisStore, Settings};
use std::sync::Arc;
use std::time::Duration;
use tidegate::ManualClock;
use tidegate_core::{Decision, Span, Timestamp};
use tidegate_testbed::{Random, RedisServer};

const BIRTH: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);
const PATIENCE: Duration = Duration::from_secs(20);
const KEY: &[u8] = b"key";
const LEASES: &str = "tg:{key}:limit#leases";

/// A limit that is lent out, and whoever asks for leases of it.
struct Desk {
    server: RedisServer,
    clock: ManualClock,
    limiter: RedisLimiter,
    current: Arc<Current>,
    numbers: u64,
}

impl Desk {
    async fn open(rule: &str) -> Self {
        let (server, clock) = (RedisServer::start(), ManualClock::at(BIRTH));
        let address = server.url().parse().expect("it is an address");
        let settings = Settings::default().deadline(PATIENCE);
        let store = RedisStore::connect_with_clock(&address, settings, clock.clone()).await;
        let rule = rule.parse().expect("it is a rule");
        let limiter = store.builder("limit", rule).lease(true).build().expect("Redis can count it");
        let exact = &limiter.inner.exact;
        let current = exact.known(exact.within()).await.expect("Redis is there");
        Self { server, clock, limiter, current, numbers: 0 }
    }

    fn now(&self) -> Micros {
        tidegate::Clock::now(&self.clock).as_micros()
    }

    async fn ask(&self, key: &[u8], terms: &Terms, request: &Request) -> Told {
        let lent = self.limiter.inner.exact.lend(key, terms, request).await;
        lent.expect("Redis is there")
    }

    /// A lease of up to so much, and of so much at least.
    async fn lend(&mut self, size: u64, at_least: u64) -> Option<Grant> {
        self.numbers += 1;
        let terms = Terms { number: self.numbers, at_least };
        let request = Request { closed: Vec::new(), size, sent: 0 };
        let Told { amount, lasts, .. } = self.ask(KEY, &terms, &request).await;
        (amount > 0).then_some(Grant { number: self.numbers, amount, lasts })
    }

    /// Gives a lease back, of which so much was not used.
    async fn give_back(&self, grant: Grant, unused: u64) {
        let closed = vec![Closed { number: grant.number, amount: grant.amount, unused }];
        let request = Request { closed, size: 0, sent: 0 };
        let told = self.ask(KEY, &Terms { number: 0, at_least: 0 }, &request).await;
        assert_eq!(told.amount, 0, "nothing was asked for");
    }

    async fn look(&self, key: &[u8], cost: u64) -> Decision {
        let looked = self.limiter.inner.exact.ask(key, Verb::Look, cost, None).await;
        looked.expect("Redis is there").decision
    }

    async fn remaining(&self) -> u64 {
        self.look(KEY, 0).await.remaining
    }

    fn leases(&self) -> String {
        self.server.command(&["ZCARD", LEASES]).text()
    }
}

#[tokio::test]
async fn what_is_lent_is_charged_first_and_written_down_until_it_ends() {
    let mut desk = Desk::open("10/min burst 40").await;
    assert_eq!(desk.remaining().await, 20, "half of it is for what is lent");
    let lasts = Span::from(LASTS).as_micros();
    assert_eq!(desk.lend(8, 1).await, Some(Grant { number: 1, amount: 8, lasts }));
    assert_eq!(desk.remaining().await, 12);
    let kept = desk.server.command(&["ZRANGE", LEASES, "0", "-1", "WITHSCORES"]);
    let ends: f64 = kept.items()[1].text().parse().expect("it is a number");
    assert_eq!(ends.to_string(), (desk.now() + lasts).to_string());
}

#[tokio::test]
async fn never_more_than_the_most_is_lent_and_what_ends_makes_room() {
    let mut desk = Desk::open("1000/s burst 40").await;
    let mut lent = 0;
    for _ in 0..30 {
        lent += desk.lend(10, 1).await.map_or(0, |grant| grant.amount);
        // What is charged has come back by then; what is lent is lent.
        desk.clock.advance(Duration::from_millis(30));
    }
    assert_eq!(lent, 20);
    let decision = desk.look(KEY, 1).await;
    assert!(decision.is_allow(), "there is room for who asks for no lease: {decision:?}");
    desk.clock.advance(LASTS);
    assert!(desk.lend(10, 1).await.is_some(), "all of them have ended");
    assert_eq!(desk.leases(), "1");
}

#[tokio::test]
async fn near_the_end_less_is_lent_down_to_what_is_needed() {
    let mut desk = Desk::open("1/h burst 40").await;
    let mut amounts = Vec::new();
    while let Some(grant) = desk.lend(8, 1).await {
        amounts.push(grant.amount);
    }
    // As much is left for others, each time; the last of all is for who needs it now.
    assert_eq!(amounts, [8, 4, 4, 2, 1, 1]);
    assert_eq!(desk.remaining().await, 0);
}

#[tokio::test]
async fn less_than_is_needed_is_not_lent() {
    let mut desk = Desk::open("1/h burst 40").await;
    assert_eq!(desk.lend(16, 16).await.map(|grant| grant.amount), Some(16));
    assert_eq!(desk.lend(8, 5).await, None, "four are left");
    assert_eq!(desk.remaining().await, 4, "and nobody was charged for it");
    assert_eq!(desk.lend(8, 4).await.map(|grant| grant.amount), Some(4));
}

#[tokio::test]
async fn what_is_not_used_comes_back_once() {
    let mut desk = Desk::open("1/h burst 40").await;
    let grant = desk.lend(8, 8).await.expect("there is room");
    assert_eq!(desk.remaining().await, 12);
    desk.give_back(grant, 5).await;
    assert_eq!((desk.remaining().await, desk.leases()), (17, "0".to_owned()));
    desk.give_back(grant, 5).await;
    assert_eq!(desk.remaining().await, 17, "it was given back already");
}

#[tokio::test]
async fn what_has_ended_does_not_come_back() {
    let mut desk = Desk::open("1/h burst 40").await;
    let grant = desk.lend(8, 8).await.expect("there is room");
    desk.clock.advance(LASTS);
    desk.give_back(grant, 8).await;
    assert_eq!(desk.remaining().await, 12);
}

#[tokio::test]
async fn what_was_never_lent_does_not_come_back() {
    let mut desk = Desk::open("1/h burst 40").await;
    let grant = desk.lend(8, 8).await.expect("there is room");
    for other in [Grant { number: 77, ..grant }, Grant { amount: 9, ..grant }] {
        desk.give_back(other, 8).await;
        assert_eq!((desk.remaining().await, desk.leases()), (12, "1".to_owned()));
    }
}

#[tokio::test]
async fn a_lease_of_a_window_ends_with_it() {
    let mut desk = Desk::open("40/10s fixed").await;
    let lasts = Span::from(LASTS).as_micros();
    assert_eq!(desk.lend(4, 1).await.map(|grant| grant.lasts), Some(lasts));
    let left = desk.look(KEY, 0).await.reset_after.as_micros();
    desk.clock.advance(Span::from_micros(left - lasts / 4));
    assert_eq!(desk.lend(4, 1).await.map(|grant| grant.lasts), Some(lasts / 4));
}

#[tokio::test]
async fn no_more_leases_are_given_than_can_be_counted() {
    let mut desk = Desk::open("1/h burst 4000").await;
    for _ in 0..LEASES_MAX {
        assert!(desk.lend(1, 1).await.is_some());
    }
    assert_eq!(desk.lend(1, 1).await, None);
    assert!(desk.look(KEY, 1).await.is_allow(), "it is decided without one");
    assert_eq!(desk.leases(), LEASES_MAX.to_string());
}

/// What `docs/scale.md` counts with, by Redis's own stopwatch; run alone, built for release, with `--no-capture`.
#[tokio::test]
async fn what_a_lease_costs_redis_grows_little_with_how_many_there_are() {
    const TIMES: u64 = 500;
    let mut desk = Desk::open("1/h burst 4000").await;
    let mut each = Vec::new();
    for leases in [1, LEASES_MAX as u64] {
        while desk.leases() != (leases - 1).to_string() {
            assert!(desk.lend(1, 1).await.is_some());
        }
        let mut took_us = 0.0;
        for _ in 0..TIMES {
            desk.server.command(&["CONFIG", "RESETSTAT"]);
            let grant = desk.lend(4, 1).await.expect("one more can be counted");
            let info = desk.server.command(&["INFO", "commandstats"]).text();
            let script = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
            let usec = script.and_then(|line| line.split_once("usec=")?.1.split(',').next());
            took_us += usec.and_then(|usec| usec.parse::<f64>().ok()).expect("it was called");
            desk.give_back(grant, grant.amount).await;
        }
        #[expect(clippy::cast_precision_loss, reason = "it is small")]
        each.push(took_us / TIMES as f64);
    }
    println!("{:.1} us with one lease, {:.1} us with {LEASES_MAX}", each[0], each[1]);
    // On a busy machine a stopwatch measures others: only what is out of all proportion is found.
    assert!(each[1] < each[0] * 20.0 + 1_000.0, "{each:?}");
}

/// By Redis's clock: where a test says the time, keys are kept for a day more.
#[tokio::test]
async fn the_list_of_leases_lives_for_a_second_more_than_they_do() {
    let server = RedisServer::start();
    let address = server.url().parse().expect("it is an address");
    let settings = Settings::default().deadline(PATIENCE);
    let store = RedisStore::connect_with(&address, settings).await;
    for (rule, lasts_ms) in [("1/h burst 40", 1_000), ("40/300ms fixed from first", 300)] {
        server.command(&["FLUSHALL"]);
        let rule = rule.parse().expect("it is a rule");
        let limiter = store.builder("limit", rule).lease(true).build().expect("Redis can count it");
        let request = Request { closed: Vec::new(), size: 8, sent: 0 };
        let terms = Terms { number: 1, at_least: 1 };
        let told = limiter.inner.exact.lend(KEY, &terms, &request).await.expect("Redis is there");
        assert_eq!(told.amount, 8);
        let lives: u64 = server.command(&["PTTL", LEASES]).text().parse().expect("it has an end");
        assert!((1..=lasts_ms + 1_000).contains(&lives), "`{}`: {lives}", limiter.rule());
    }
}

/// One key under one rule, through what can happen to it; whatever Redis says, the ledger says too.
async fn story(desk: &Desk, seed: u64) {
    let (mut random, key) = (Random(seed), format!("key-{seed}"));
    let (limit, key) = (desk.current.shared.limit(), key.as_bytes());
    let lending = desk.current.lending.as_ref().expect("it is lent out");
    let mut ledger = Ledger::new(limit, BIRTH);
    let mut grants: Vec<Grant> = Vec::new();
    for number in 1..=OPERATIONS {
        let now = desk.now();
        if random.below(4) == 0 {
            let cost = random.below(3) + 1;
            let taken = desk.limiter.inner.exact.take(key, cost, None).await;
            let decided = limit.decide(&mut ledger.state, Timestamp::from_micros(now), cost);
            assert_eq!(taken.expect("Redis is there").decision, decided, "seed {seed}, {number}");
        } else {
            // Some of them have ended, and some were given back before.
            let mut closed = Vec::new();
            for Grant { number, amount, .. } in &grants {
                if random.below(4) == 0 {
                    let unused = random.below(amount + 1);
                    closed.push(Closed { number: *number, amount: *amount, unused });
                }
            }
            let request = Request { closed, size: random.below(30), sent: now };
            let at_least = if request.size == 0 { 0 } else { random.below(request.size) + 1 };
            let terms = Terms { number, at_least };
            let told = desk.ask(key, &terms, &request).await;
            let lent = ledger.lend(limit, lending, now, &terms, &request);
            let told = (told.amount > 0).then_some(Grant {
                number,
                amount: told.amount,
                lasts: told.lasts,
            });
            assert_eq!(told, lent, "seed {seed}, {number}: {terms:?}, {request:?}");
            assert!(ledger.lent() <= lending.leased_max);
            grants.extend(lent);
        }
        let left = limit.peek(&ledger.state, Timestamp::from_micros(now), 1);
        assert_eq!(desk.look(key, 1).await, left, "seed {seed}, {number}");
        let step = [0, random.below(1_000), random.below(200_000), random.below(2_000_000)];
        desk.clock.advance(Span::from_micros(step[usize::try_from(number % 4).unwrap_or(0)]));
    }
}

const OPERATIONS: u64 = 40;
const STORIES: u64 = 10;

#[tokio::test]
async fn what_the_script_lends_is_what_the_simulation_takes_it_for() {
    for rule in [
        "50/s burst 100",
        "1000/min leaky capacity 60",
        "80/s fixed",
        "100/3s fixed from first",
        "200/min calendar",
    ] {
        let desk = Desk::open(rule).await;
        for seed in 0..STORIES {
            story(&desk, seed).await;
        }
    }
}
