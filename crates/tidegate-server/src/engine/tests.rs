//! Ad-hoc rules and their leases.

use super::*;
use tidegate::{ManualClock, Span};

/// An engine that can be restarted from its own snapshot.
struct Harness {
    clock: ManualClock,
    engine: Engine,
}

const fn hours(hours: u64) -> Span {
    Span::from_secs(hours * 3_600)
}

impl Harness {
    fn new() -> Self {
        Self::of(ManualClock::new(), &Snapshot::default())
    }

    fn of(clock: ManualClock, restored: &Snapshot) -> Self {
        let engine = Engine::new(&Config::default(), ServerClock::Manual(clock.clone()), restored);
        Self { clock, engine }
    }

    fn restarted(&self) -> Self {
        let (remembered, mut bytes) = (self.engine.snapshot_limiters(), Vec::new());
        let named = remembered.iter().map(|(name, limiter)| (name.as_str(), limiter));
        Snapshot::write_with(&mut bytes, named, || self.engine.attached())
            .expect("a buffer takes all bytes");
        Self::of(self.clock.clone(), &Snapshot::read(&bytes).expect("the snapshot is complete"))
    }

    /// Acquires a permit; `None` if the limit denies it.
    async fn acquire(&self, client: u64, rule: &str) -> Result<Option<Lease>, TooManyLeases> {
        let engine = self.engine.by(ClientId::from_u64(client));
        let limit = engine.find(rule).expect("the rule can be opened");
        Ok(engine.acquire(&LimitRequest { limit: &limit, key: b"k", cost: 1 }).await?.ok())
    }

    /// Acquires permits until there are too many leases. Returns their number.
    async fn flood(&self, peer: u64, rule: &str) -> usize {
        let mut taken = 0;
        while let Ok(Some(_)) = self.acquire(peer, rule).await {
            taken += 1;
        }
        taken
    }
}

const MANY: &str = "concurrency 1000000";
/// The leases of ad-hoc rules that one client gets.
const SHARE: usize = 3 * lease::AD_HOC_LEASES_MAX / 4;

#[tokio::test]
async fn clearing_a_rule_releases_its_permits() {
    for cleared in [None, Some(" concurrency  1000000")] {
        let harness = Harness::new();
        let other = harness.acquire(2, "concurrency 1").await.expect("there are leases left");
        assert_eq!(harness.flood(1, MANY).await, SHARE, "three quarters");
        let count = harness.engine.clear_ad_hoc_rules(cleared);
        assert_eq!(count, if cleared.is_some() { 1 } else { 2 });
        assert!(
            harness.acquire(1, MANY).await.expect("the client's share is free again").is_some()
        );
        let other = harness
            .engine
            .release(other.expect("a permit is free").id)
            .await
            .expect("memory replies");
        assert_eq!(other, cleared.is_some(), "a rule that is not cleared keeps its permits");
    }
}

#[tokio::test]
async fn a_permit_of_an_ad_hoc_rule_is_held_for_a_day_at_most() {
    for rule in ["concurrency 1", "concurrency 1 lease 36525day"] {
        let mut harness = Harness::new();
        let lease = harness
            .acquire(1, rule)
            .await
            .expect("there are leases left")
            .expect("a permit is free");
        assert_eq!(lease.lease, Some(hours(24)), "{rule}: the client sees it");
        harness.clock.advance(hours(23));
        if rule.contains("lease") {
            harness = harness.restarted();
        }
        assert!(harness.acquire(2, rule).await.expect("there are leases left").is_none(), "{rule}");
        harness.clock.advance(hours(1));
        assert!(harness.acquire(2, rule).await.expect("there are leases left").is_some(), "{rule}");
        assert!(!harness.engine.release(lease.id).await.expect("memory replies"), "{rule}");
    }
}

#[tokio::test]
async fn neither_a_restart_nor_a_refused_request_counts_as_use_of_a_rule() {
    let harness = Harness::new();
    let rule = "concurrency 1 lease 2day";
    harness.acquire(1, rule).await.expect("there are leases left").expect("a permit is free");
    harness.clock.advance(hours(23));
    let harness = harness.restarted();
    assert_eq!(harness.engine.snapshot_limiters().len(), 2, "the rule and `CL.THROTTLE`");
    harness.engine.accept_ad_hoc_rules(false);
    assert!(harness.engine.by(ClientId::from_u64(1)).find(rule).is_err());
    harness.clock.advance(hours(2));
    assert_eq!(harness.engine.snapshot_limiters().len(), 1, "the rule was not used for 25 hours");
}

#[tokio::test]
async fn an_evicted_rule_releases_its_permits() {
    let harness = Harness::new();
    harness
        .acquire(1, "concurrency 1")
        .await
        .expect("there are leases left")
        .expect("a permit is free");
    let engine = harness.engine.by(ClientId::from_u64(1));
    let find = |count| engine.find(&format!("concurrency {count}")).expect("it can be opened");
    let limiter = find(1).counters().limiter().expect("the limit is in memory").clone();
    assert!(!limiter.is_idle(), "its permit is held");
    harness.clock.advance(hours(24));
    (2..=RULES_MAX).for_each(|count| drop(find(count)));
    assert!(limiter.is_idle(), "the eviction released the permit");
}
