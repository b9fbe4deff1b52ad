//! Rules without a name and the places that are held under them.

use super::*;
use tidegate::{ManualClock, Span};

/// An engine, and another one that goes on with what is written of it.
struct Bench {
    clock: ManualClock,
    engine: Engine,
}

const fn hours(hours: u64) -> Span {
    Span::from_secs(hours * 3_600)
}

impl Bench {
    fn new() -> Self {
        Self::of(ManualClock::new(), &Snapshot::default())
    }

    fn of(clock: ManualClock, restored: &Snapshot) -> Self {
        let engine = Engine::new(&Config::default(), ServerClock::Manual(clock.clone()), restored);
        Self { clock, engine }
    }

    fn restarted(&self) -> Self {
        let (remembered, mut bytes) = (self.engine.remembered(), Vec::new());
        let named = remembered.iter().map(|(name, limiter)| (name.as_str(), limiter));
        Snapshot::write_with(&mut bytes, named, || self.engine.attached()).expect("it has room");
        Self::of(self.clock.clone(), &Snapshot::read(&bytes).expect("it is whole"))
    }

    /// Takes a place; `None` if all are taken.
    async fn acquire(&self, peer: u64, rule: &str) -> Result<Option<Lease>, StoreError> {
        let engine = self.engine.by(ClientId::from_u64(peer));
        let limit = engine.find(rule).expect("there is room for the rule");
        Ok(engine.acquire(&Ask { limit: &limit, key: Key(b"k"), cost: 1 }).await?.ok())
    }

    /// Takes places until there is room for no more. Tells how many.
    async fn flood(&self, peer: u64, rule: &str) -> usize {
        let mut taken = 0;
        while let Ok(Some(_)) = self.acquire(peer, rule).await {
            taken += 1;
        }
        taken
    }
}

const MANY: &str = "concurrency 1000000";
/// What a peer alone gets of the places under rules without a name.
const SHARE: usize = 3 * lease::AD_HOC_LEASES_MAX / 4;

#[tokio::test]
async fn clearing_rules_gives_back_the_places_that_are_held_under_them() {
    for cleared in [None, Some(" concurrency  1000000")] {
        let bench = Bench::new();
        let other = bench.acquire(2, "concurrency 1").await.expect("there is room");
        assert_eq!(bench.flood(1, MANY).await, SHARE, "a bit less than three quarters are left");
        let count = bench.engine.clear_ad_hoc_rules(cleared);
        assert_eq!(count, if cleared.is_some() { 1 } else { 2 });
        assert!(bench.acquire(1, MANY).await.expect("its share is back").is_some());
        let other = bench.engine.release(other.expect("a place").id).await.expect("it answers");
        assert_eq!(other, cleared.is_some(), "a rule that is not cleared keeps its places");
    }
}

#[tokio::test]
async fn a_place_under_a_rule_without_a_name_is_held_for_a_day_at_most() {
    for rule in ["concurrency 1", "concurrency 1 lease 36525day"] {
        let mut bench = Bench::new();
        let lease = bench.acquire(1, rule).await.expect("there is room").expect("a place");
        assert_eq!(lease.lease, Some(hours(24)), "{rule}: the client is told");
        bench.clock.advance(hours(23));
        if rule.contains("lease") {
            bench = bench.restarted();
        }
        assert!(bench.acquire(2, rule).await.expect("there is room").is_none(), "{rule}");
        bench.clock.advance(hours(1));
        assert!(bench.acquire(2, rule).await.expect("there is room").is_some(), "{rule}");
        assert!(!bench.engine.release(lease.id).await.expect("it answers"), "{rule}");
    }
}

#[tokio::test]
async fn neither_a_restart_nor_a_refused_request_asks_for_a_rule() {
    let bench = Bench::new();
    let rule = "concurrency 1 lease 2day";
    bench.acquire(1, rule).await.expect("there is room").expect("a place");
    bench.clock.advance(hours(23));
    let bench = bench.restarted();
    assert_eq!(bench.engine.remembered().len(), 2, "the rule, and `CL.THROTTLE`");
    bench.engine.take_ad_hoc_rules(false);
    assert!(bench.engine.by(ClientId::from_u64(1)).find(rule).is_err());
    bench.clock.advance(hours(2));
    assert_eq!(bench.engine.remembered().len(), 1, "nobody has asked for it for 25 hours");
}

#[tokio::test]
async fn a_rule_that_goes_for_another_gives_back_the_places_that_are_held_under_it() {
    let bench = Bench::new();
    bench.acquire(1, "concurrency 1").await.expect("there is room").expect("a place");
    let engine = bench.engine.by(ClientId::from_u64(1));
    let find = |count| engine.find(&format!("concurrency {count}")).expect("there is room");
    let limiter = find(1).counters().limiter().expect("it is in memory").clone();
    assert!(!limiter.is_idle(), "it is held");
    bench.clock.advance(hours(24));
    (2..=RULES_MAX).for_each(|count| drop(find(count)));
    assert!(limiter.is_idle(), "it was given back with the rule, before anybody asked for a place");
}
