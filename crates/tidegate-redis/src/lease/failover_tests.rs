//! Tests with real servers: a primary is replaced by one without data while a node requests a lease.

use super::balance::LeaseRequest;
use super::codec::LendTerms;
use super::refill::{Refill, RefillResult};
use super::{LEASE_TIME, LeaseDecision, Leases, RefillStart};
use crate::remote::RemoteLimit;
use crate::{RedisLimiter, RedisStore, Settings};
use std::sync::Arc;
use std::time::Duration;
use tidegate_testbed::RedisServer;
use tokio::time::{Instant, sleep};

const TIMEOUT: Duration = Duration::from_secs(20);
const KEY: &[u8] = b"key";
const LEASED_MAX: u64 = 50;

/// A server, and a node that takes leases.
struct Stage {
    server: RedisServer,
    limiter: RedisLimiter,
}

impl Stage {
    /// Starts, and waits for the end of the cooldown.
    async fn start() -> Self {
        Self::start_with("100/h burst 100").await
    }

    async fn start_with(rule: &str) -> Self {
        let server = RedisServer::start();
        let address = server.url().parse().expect("it is an address");
        let settings = Settings::default().deadline(TIMEOUT);
        let store = RedisStore::connect_with(&address, settings).await;
        let rule = rule.parse().expect("it is a rule");
        let limiter = store.builder("limit", rule).lease(true).build().expect("Redis can count it");
        let stage = Self { server, limiter };
        let deadline = stage.remote().start_deadline();
        let current = stage.leases().current_rule(deadline).await;
        assert_eq!(
            current.expect("Redis answers").lending.as_ref().expect("it has leases").leased_max,
            LEASED_MAX
        );
        stage.becomes(|stage| !stage.leases().is_cooling_down()).await;
        stage
    }

    fn remote(&self) -> &RemoteLimit {
        &self.limiter.inner.remote
    }

    fn leases(&self) -> &Arc<Leases> {
        self.limiter.inner.leases.as_ref().expect("it has leases")
    }

    /// Starts a request for a lease, without sending it.
    fn begin(&self) -> Refill {
        let RefillStart::Request(leased, request) = self.leases().start_refill(KEY, 1, LEASED_MAX)
        else {
            panic!("no other request is in progress");
        };
        let sent = self.limiter.inner.denial_cache.now();
        Refill::new(self.leases(), KEY, 1, leased, request, sent)
    }

    /// Restarts the server without its data, and waits until the node has noticed.
    async fn replace(&self) {
        let servers = &self.remote().runner().servers;
        let before = servers.changes();
        self.server.kill();
        self.becomes(|stage| !stage.remote().is_up(KEY)).await;
        self.server.restart();
        self.becomes(|stage| stage.remote().is_up(KEY)).await;
        assert!(servers.changes() > before, "the change is counted");
    }

    async fn becomes(&self, holds: impl Fn(&Self) -> bool) {
        let ends = Instant::now() + TIMEOUT;
        while !holds(self) {
            assert!(Instant::now() < ends, "not within {TIMEOUT:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns how many scripts Redis has run.
    fn scripts(&self) -> u64 {
        let info = self.server.command(&["INFO", "commandstats"]).text();
        let calls = info.lines().filter_map(|line| {
            let rest = line.strip_prefix("cmdstat_eval")?.split_once("calls=")?.1;
            rest.split(',').next()?.parse::<u64>().ok()
        });
        calls.sum()
    }

    /// Returns how many leases Redis has granted.
    fn lent(&self) -> String {
        self.server.command(&["ZCARD", "tg:{key}:limit#leases"]).text()
    }
}

#[tokio::test]
async fn a_lease_is_spent_if_the_primary_stays() {
    let stage = Stage::start().await;
    assert!(matches!(stage.begin().run().await, Ok(RefillResult::Spent(_))));
    assert!(stage.leases().spend(KEY, 1).is_some(), "and the rest of it too");
    assert_eq!(stage.lent(), "1");
}

#[tokio::test]
async fn a_lease_of_a_new_primary_is_not_spent_while_old_leases_may_be_in_use() {
    let stage = Stage::start().await;
    let refill = stage.begin();
    stage.replace().await;
    assert!(matches!(refill.run().await, Ok(RefillResult::NoLease)));
    assert_eq!(stage.lent(), "1", "the new primary has granted it, and does not know the old ones");
    assert_eq!(stage.leases().spend(KEY, 1), None);
    let leased = stage.leases().find(KEY).expect("the key stays");
    assert!(!leased.balance.lock().is_requested(), "the next request may request a lease");
}

/// A request that timed out was admitted by the share, which was not charged for the lease.
#[tokio::test]
async fn a_lease_that_arrives_after_the_share_has_admitted_is_not_spent() {
    let stage = Stage::start().await;
    let refill = stage.begin();
    assert!(stage.limiter.inner.fallback.decide(KEY, 100).decision.is_allow());
    assert!(matches!(refill.run().await, Ok(RefillResult::NoLease)));
    assert_eq!(stage.leases().spend(KEY, 1), None);
}

#[tokio::test]
async fn a_request_that_waits_for_a_lease_while_the_primary_is_replaced_requests_none_of_the_new_one()
 {
    let stage = Stage::start().await;
    let refill = stage.begin();
    let waiting = {
        let inner = Arc::clone(&stage.limiter.inner);
        tokio::spawn(async move {
            let (sent, deadline) = (inner.denial_cache.now(), inner.remote.start_deadline());
            let leases = inner.leases.as_ref().expect("it has leases");
            leases.refill(KEY, 1, sent, deadline).await
        })
    };
    // It waits for the first request, which is not sent yet.
    sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    stage.replace().await;
    drop(refill);
    assert!(matches!(waiting.await.expect("no task panics"), Ok(LeaseDecision::AskRedis)));
    assert_eq!(stage.lent(), "0");
}

#[tokio::test]
async fn after_a_restart_no_lease_is_used_for_as_long_as_a_lease_lasts() {
    let stage = Stage::start().await;
    let is_cooling_down = |stage: &Stage| stage.leases().is_cooling_down();
    assert!(!is_cooling_down(&stage));
    stage.replace().await;
    let began = Instant::now();
    assert!(is_cooling_down(&stage), "at once");
    stage.becomes(|stage| !is_cooling_down(stage)).await;
    assert!(began.elapsed() >= LEASE_TIME, "{:?}", began.elapsed());
    assert!(
        matches!(stage.begin().run().await, Ok(RefillResult::Spent(_))),
        "and then leases are used"
    );
}

/// Another node has all possible leases, and the rate refills more than is requested.
#[tokio::test]
async fn while_too_much_is_leased_a_request_takes_one_round_trip() {
    const REQUESTS: u64 = 40;
    let stage = Stage::start_with("5000/s burst 100").await;
    let remote = stage.remote();
    let request = LeaseRequest { closed: Vec::new(), size: LEASED_MAX, sent: 0 };
    let reply = remote.lend(KEY, &LendTerms { number: 7, at_least: LEASED_MAX }, &request).await;
    assert_eq!(reply.expect("Redis answers").amount, LEASED_MAX);
    sleep(Duration::from_millis(50)).await;
    let (before, began) = (stage.scripts(), Instant::now());
    for _ in 0..REQUESTS {
        assert!(stage.limiter.check(KEY).await.is_allow());
    }
    // The rule is read once a second, and a lease is requested ten times a second.
    let others = 2 + 12 * u64::try_from(began.elapsed().as_millis()).expect("it is short") / 1_000;
    let scripts = stage.scripts() - before;
    assert!(scripts <= REQUESTS + others, "{scripts} scripts for {REQUESTS} requests");
}
