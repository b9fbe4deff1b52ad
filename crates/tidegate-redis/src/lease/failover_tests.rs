//! A primary that is replaced while somebody asks for a lease, on real servers that lose all they know.

use super::balance::Request;
use super::codec::Terms;
use super::refill::Errand;
use super::{Begun, LASTS, Leases, Lent, Outcome};
use crate::limiter::{Inner, RedisLimiter};
use crate::{RedisStore, Settings};
use std::sync::Arc;
use std::time::Duration;
use tidegate_testbed::RedisServer;
use tokio::time::{Instant, sleep};

const PATIENCE: Duration = Duration::from_secs(20);
const KEY: &[u8] = b"key";
const MOST: u64 = 50;

struct Stage {
    server: RedisServer,
    limiter: RedisLimiter,
}

impl Stage {
    /// Somebody who takes leases, and has waited for it.
    async fn start() -> Self {
        Self::start_with("100/h burst 100").await
    }

    async fn start_with(rule: &str) -> Self {
        let server = RedisServer::start();
        let address = server.url().parse().expect("it is an address");
        let settings = Settings::default().deadline(PATIENCE);
        let store = RedisStore::connect_with(&address, settings).await;
        let rule = rule.parse().expect("it is a rule");
        let limiter = store.builder("limit", rule).lease(true).build().expect("Redis can count it");
        let stage = Self { server, limiter };
        let current = {
            let exact = &stage.inner().exact;
            stage.leases().current(exact, exact.within()).await
        };
        assert_eq!(
            current.expect("Redis is there").lending.as_ref().expect("it lends").leased_max,
            MOST
        );
        stage.becomes(|stage| !stage.leases().is_quiet(&stage.inner().exact)).await;
        stage
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.limiter.inner
    }

    fn leases(&self) -> &Leases {
        self.inner().leases.as_ref().expect("it lends")
    }

    /// Asks for a lease, up to where Redis is asked.
    fn begin(&self) -> Errand {
        let Begun::Ask(kept, request) = self.leases().begin(KEY, 1, MOST) else {
            panic!("nobody else asks");
        };
        Errand::new(self.inner(), KEY, 1, kept, request, self.inner().denied.now())
    }

    /// Another run of the server, which knows nothing, has been met.
    async fn replace(&self) {
        let link = &self.inner().exact.store().link;
        let before = link.changes();
        self.server.kill();
        self.becomes(|stage| !stage.inner().exact.is_up(KEY)).await;
        self.server.restart();
        self.becomes(|stage| stage.inner().exact.is_up(KEY)).await;
        assert!(link.changes() > before, "it is another one");
    }

    async fn becomes(&self, holds: impl Fn(&Self) -> bool) {
        let ends = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < ends, "not within {PATIENCE:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// How many scripts Redis has run.
    fn scripts(&self) -> u64 {
        let info = self.server.command(&["INFO", "commandstats"]).text();
        let calls = info.lines().filter_map(|line| {
            let rest = line.strip_prefix("cmdstat_eval")?.split_once("calls=")?.1;
            rest.split(',').next()?.parse::<u64>().ok()
        });
        calls.sum()
    }

    /// What Redis says is lent, now.
    fn lent(&self) -> String {
        self.server.command(&["ZCARD", "tg:{key}:limit#leases"]).text()
    }
}

#[tokio::test]
async fn what_a_primary_lends_is_spent_where_nothing_changes() {
    let stage = Stage::start().await;
    assert!(matches!(stage.begin().run().await, Ok(Lent::Spent(_))));
    assert!(stage.leases().spend(KEY, 1).0 > 0, "and there is more of it");
    assert_eq!(stage.lent(), "1");
}

/// Between the first look and the answer anything may happen; here it is all that can.
#[tokio::test]
async fn what_a_new_primary_lends_while_old_leases_may_be_about_is_not_spent() {
    let stage = Stage::start().await;
    let errand = stage.begin();
    stage.replace().await;
    assert!(matches!(errand.run().await, Ok(Lent::Quiet)));
    assert_eq!(stage.lent(), "1", "the new one has lent it, and knows nothing of others");
    assert_eq!(stage.leases().spend(KEY, 1), (0, super::Spent::No));
    let kept = stage.leases().find(KEY).expect("it is kept");
    assert!(!kept.purse().is_asking(), "who comes next may ask");
}

/// Who would have waited too long was admitted by the share, which nobody had charged with what is on its way.
#[tokio::test]
async fn a_lease_that_comes_when_the_share_has_decided_is_not_spent() {
    let stage = Stage::start().await;
    let errand = stage.begin();
    assert!(stage.inner().fallback.decide(KEY, 100).decision.is_allow());
    assert!(matches!(errand.run().await, Ok(Lent::Quiet)));
    assert_eq!(stage.leases().spend(KEY, 1), (0, super::Spent::No));
}

#[tokio::test]
async fn who_waits_for_a_lease_while_the_primary_is_replaced_asks_for_none_of_the_new_one() {
    let stage = Stage::start().await;
    let errand = stage.begin();
    let waiting = {
        let inner = Arc::clone(stage.inner());
        tokio::spawn(async move {
            let (asked, deadline) = (inner.denied.now(), inner.exact.within());
            let leases = inner.leases.as_ref().expect("it lends");
            leases.refill(&inner, KEY, 1, asked, deadline).await
        })
    };
    // It waits for the errand: nothing else keeps it from being done.
    sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    stage.replace().await;
    drop(errand);
    assert!(matches!(waiting.await.expect("nobody panics"), Ok(Outcome::Direct)));
    assert_eq!(stage.lent(), "0");
}

#[tokio::test]
async fn after_a_restart_nothing_is_lent_for_as_long_as_a_lease_lasts() {
    let stage = Stage::start().await;
    let is_quiet = |stage: &Stage| stage.leases().is_quiet(&stage.inner().exact);
    assert!(!is_quiet(&stage));
    stage.replace().await;
    let began = Instant::now();
    assert!(is_quiet(&stage), "at once");
    stage.becomes(|stage| !is_quiet(stage)).await;
    assert!(began.elapsed() >= LASTS, "{:?}", began.elapsed());
    assert!(matches!(stage.begin().run().await, Ok(Lent::Spent(_))), "and then it is");
}

/// Another node has all that may be lent, and the rate brings more than is asked for.
#[tokio::test]
async fn where_too_much_is_lent_a_request_is_one_round_trip_and_not_two() {
    const REQUESTS: u64 = 40;
    let stage = Stage::start_with("5000/s burst 100").await;
    let exact = &stage.inner().exact;
    let request = Request { closed: Vec::new(), size: MOST, sent: 0 };
    let told = exact.lend(KEY, &Terms { number: 7, at_least: MOST }, &request).await;
    assert_eq!(told.expect("Redis is there").amount, MOST);
    sleep(Duration::from_millis(50)).await;
    let (before, began) = (stage.scripts(), Instant::now());
    for _ in 0..REQUESTS {
        assert!(stage.limiter.check(KEY).await.is_allow());
    }
    // The rule is asked for once a second, and whether there is a lease again ten times.
    let others = 2 + 12 * u64::try_from(began.elapsed().as_millis()).expect("it is short") / 1_000;
    let scripts = stage.scripts() - before;
    assert!(scripts <= REQUESTS + others, "{scripts} scripts for {REQUESTS} requests");
}
