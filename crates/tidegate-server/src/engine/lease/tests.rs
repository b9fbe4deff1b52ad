//! Leases over restarts and resets, and at their maximum.

use super::table::ENDED_BATCH_MAX;
use super::*;
use crate::config::Config;
use crate::engine::{Engine, LimitRequest};
use tidegate::snapshot::{Attached, Snapshot};

fn engine() -> Engine {
    Engine::new(&Config::default(), ServerClock::system(), &Snapshot::default())
}

const UNNAMED: &str = "concurrency 1000000000";

async fn acquire_of(
    engine: &Engine,
    limit: &str,
    (client, cost): (u64, u64),
) -> Result<LeaseId, TooManyLeases> {
    let limit = engine.find(limit).expect("the text is a limit");
    let ask = LimitRequest { limit: &limit, key: b"pool", cost };
    let taken = engine.by(ClientId::from_u64(client)).acquire(&ask).await?;
    Ok(taken.expect("a permit is free").id)
}

async fn acquire(engine: &Engine, cost: u64) -> Result<LeaseId, TooManyLeases> {
    acquire_of(engine, UNNAMED, (1, cost)).await
}

#[tokio::test]
async fn there_are_no_more_leases_than_the_maximum() {
    let engine = engine();
    let peer = |number: usize| (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut held = Vec::new();
    let refused = loop {
        match acquire_of(&engine, UNNAMED, (peer(held.len()), 1)).await {
            Ok(lease) => held.push(lease),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, TooManyLeases { max: AD_HOC_LEASES_MAX });
    assert!(refused.to_string().contains("release some"));
    // With this many clients, the counters that they share refuse a little early.
    let all = AD_HOC_LEASES_MAX - AD_HOC_LEASES_MAX / 1_000..=AD_HOC_LEASES_MAX;
    assert!(all.contains(&held.len()), "{}", held.len());
    for lease in held.drain(..100) {
        assert!(engine.release(lease).await.expect("memory replies"));
    }
    acquire(&engine, 1).await.expect("leases are free again");
}

#[tokio::test]
async fn a_client_with_many_leases_of_ad_hoc_rules_takes_none_from_other_clients_or_named_limits() {
    let config = "[limits.pool]\nrule = \"concurrency 1000000000\"\n";
    let config = crate::config::read(config, "t.toml").expect("the configuration is valid");
    let engine = Engine::new(&config, ServerClock::system(), &Snapshot::default());
    let mut held = 0;
    while acquire_of(&engine, UNNAMED, (1, 1)).await.is_ok() {
        held += 1;
    }
    assert_eq!(held, 3 * AD_HOC_LEASES_MAX / 4);
    acquire_of(&engine, UNNAMED, (2, 1)).await.expect("another client has its share");
    acquire_of(&engine, "pool", (1, 1)).await.expect("a named limit has its own leases");
}

/// An engine that can be restarted from its own snapshot.
struct Restarted {
    config: Config,
    clock: tidegate::ManualClock,
    engine: Engine,
}

impl Restarted {
    fn new() -> Self {
        let config = "[limits.pool]\nrule = \"concurrency 2 lease 30s\"\n[limits.open]\nrule = \"concurrency 2\"\n";
        let config = crate::config::read(config, "t.toml").expect("the configuration is valid");
        let clock = tidegate::ManualClock::new();
        let server_clock = ServerClock::Manual(clock.clone());
        let engine = Engine::new(&config, server_clock, &Snapshot::default());
        Self { config, clock, engine }
    }

    fn written(&self, attached: Vec<Attached>) -> Snapshot {
        let (remembered, mut bytes) = (self.engine.snapshot_limiters(), Vec::new());
        let named = remembered.iter().map(|(name, limiter)| (name.as_str(), limiter));
        Snapshot::write_with(&mut bytes, named, || attached).expect("a buffer takes all bytes");
        Snapshot::read(&bytes).expect("the snapshot is complete")
    }

    fn restart(&mut self) {
        let written = self.written(self.engine.attached());
        let clock = ServerClock::Manual(self.clock.clone());
        self.engine = Engine::new(&self.config, clock, &written);
    }

    async fn acquire(&self, limit: &str, key: &[u8]) -> Option<LeaseId> {
        let limit = self.engine.find(limit).expect("the text is a limit");
        let ask = LimitRequest { limit: &limit, key, cost: 1 };
        let taken = self.engine.by(ClientId::from_u64(7)).acquire(&ask).await;
        taken.expect("memory replies").ok().map(|lease| lease.id)
    }

    async fn release(&self, lease: Option<LeaseId>) -> bool {
        self.engine.release(lease.expect("it was acquired")).await.expect("memory replies")
    }

    fn leases(&self) -> usize {
        self.engine.leases.len()
    }
}

#[tokio::test]
async fn a_permit_that_is_restored_can_be_released_once() {
    let mut server = Restarted::new();
    let first = server.acquire("pool", b"a").await;
    let other = server.acquire("pool", b"b").await;
    let unnamed = server.acquire("concurrency 1 lease 20s", b"a").await;
    server.clock.advance(Span::from_secs(10));
    let second = server.acquire("pool", b"a").await;
    let free = server.acquire("open", b"a").await;
    for _ in 0..3 {
        server.restart();
        assert_eq!(server.leases(), 4, "a permit without a lease is not in the snapshot");
    }
    assert_eq!(server.acquire("pool", b"a").await, None, "both permits are held");
    assert!(server.release(first).await);
    assert!(!server.release(first).await, "once");
    assert!(!server.release(free).await, "its permit was released by the restart");
    let third = server.acquire("pool", b"a").await;
    assert!(third.is_some() && third != first, "one permit is free, with another id");
    assert_eq!(server.acquire("pool", b"a").await, None, "and no more than one");
    assert!(server.release(unnamed).await && server.release(other).await);
    assert!(server.acquire("concurrency 1 lease 20s", b"a").await.is_some());
    server.restart();
    server.clock.advance(Span::from_secs(25));
    assert!(server.release(second).await, "it is held until 30 s after it was acquired");
    server.clock.advance(Span::from_secs(5));
    assert!(!server.release(third).await, "its lease has run out");
    assert_eq!(server.engine.leases.named.taken(), 0, "no share is taken");
}

#[tokio::test]
async fn a_reset_after_a_restart_ends_leases() {
    let mut server = Restarted::new();
    let first = server.acquire("pool", b"a").await;
    server.restart();
    let limit = server.engine.find("pool").expect("the limit exists");
    server.engine.reset(&limit, b"a").await.expect("memory replies");
    assert!(!server.release(first).await);
}

#[tokio::test]
async fn a_snapshot_without_leases_or_with_damaged_ones_is_used_without_them() {
    let mut server = Restarted::new();
    let first = server.acquire("pool", b"a").await;
    let [rules, (name, bytes)] =
        <[_; 2]>::try_from(server.engine.attached()).expect("rules and leases");
    let truncated = bytes[..bytes.len() - 1].to_vec();
    for attached in [Vec::new(), vec![rules, (name, truncated)]] {
        let written = server.written(attached);
        let clock = ServerClock::Manual(server.clock.clone());
        let engine = Engine::new(&server.config, clock, &written);
        let limit = engine.find("pool").expect("the limit exists");
        let ask = LimitRequest { limit: &limit, key: b"a", cost: 2 };
        assert!(
            engine.by(ClientId::OWN).acquire(&ask).await.expect("memory replies").is_err(),
            "it is held"
        );
    }
    server.restart();
    assert!(server.release(first).await);
}

#[tokio::test]
async fn a_reset_ends_the_leases_of_its_key_and_no_others() {
    let engine = engine();
    let of = |text: &str| engine.find(text).expect("the text is a rule");
    let (limit, other) = (of("concurrency 2"), of("concurrency 3"));
    let mut ids = Vec::new();
    for (limit, key) in [(&limit, "a"), (&limit, "a"), (&limit, "b"), (&other, "a")] {
        let ask = LimitRequest { limit, key: key.as_bytes(), cost: 1 };
        ids.push(
            engine
                .by(ClientId::OWN)
                .acquire(&ask)
                .await
                .expect("memory replies")
                .expect("a permit is free")
                .id,
        );
    }
    engine.reset(&limit, b"a").await.expect("memory replies");
    assert_eq!(engine.leases.len(), 2);
    let ask = LimitRequest { limit: &limit, key: b"a", cost: 2 };
    let both = engine
        .by(ClientId::OWN)
        .acquire(&ask)
        .await
        .expect("memory replies")
        .expect("both permits are free")
        .id;
    let mut released = Vec::new();
    for id in ids {
        released.push(engine.release(id).await.expect("memory replies"));
    }
    assert_eq!(released, [false, false, true, true]);
    let ask = LimitRequest { cost: 1, ..ask };
    assert!(
        engine.by(ClientId::OWN).acquire(&ask).await.expect("memory replies").is_err(),
        "both are held"
    );
    assert!(engine.release(both).await.expect("memory replies"));
}

#[tokio::test]
async fn a_permit_of_cost_zero_has_no_lease() {
    let engine = engine();
    let free = acquire(&engine, 0).await.expect("it costs nothing");
    assert!(engine.leases.len() == 0);
    assert!(!engine.release(free).await.expect("memory replies"), "there is no permit to release");
}

/// A reset used to look at every lease, under the lock that every acquire needs.
#[tokio::test]
async fn a_reset_of_a_key_without_leases_looks_at_no_leases() {
    const HELD: u64 = 50_000;
    const RESETS: usize = 50_000;
    let engine = engine();
    for number in 0..HELD {
        acquire_of(&engine, UNNAMED, (number / 100, 1)).await.expect("there are leases left");
    }
    let limit = engine.find(UNNAMED).expect("the text is a limit");
    let clock = ServerClock::system();
    let start = clock.now();
    for _ in 0..RESETS {
        engine.reset(&limit, b"unused").await.expect("memory replies");
    }
    let took = clock.now().since(start);
    // If every reset looked at all leases, this would take minutes.
    assert!(took < Span::from_secs(10), "{took}");
}

#[tokio::test]
async fn leases_that_end_together_are_released_in_batches() {
    let clock = tidegate::ManualClock::new();
    let server_clock = ServerClock::Manual(clock.clone());
    let engine = Engine::new(&Config::default(), server_clock, &Snapshot::default());
    let limit = "concurrency 1000000000 lease 1s";
    for number in 0..3 * ENDED_BATCH_MAX as u64 {
        acquire_of(&engine, limit, (number / 10, 1)).await.expect("there are leases left");
    }
    clock.advance(Span::from_secs(2));
    let mut counts = vec![engine.leases.len()];
    for _ in 0..3 {
        acquire_of(&engine, limit, (1, 1)).await.expect("there are leases left");
        counts.push(engine.leases.len());
    }
    let left = |rounds: usize| (3 - rounds) * ENDED_BATCH_MAX + rounds;
    assert_eq!(counts, [0, 1, 2, 3].map(left));
}
