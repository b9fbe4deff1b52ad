//! Who holds places, over restarts, resets and more than there may be.

use super::*;
use crate::config::Config;
use crate::engine::{Ask, Engine};
use crate::store::{Key, StoreError};
use tidegate::snapshot::Snapshot;

fn engine() -> Engine {
    Engine::new(&Config::default(), ServerClock::system(), &Snapshot::default())
}

const UNNAMED: &str = "concurrency 1000000000";

async fn take_under(
    engine: &Engine,
    limit: &str,
    (peer, cost): (u64, u64),
) -> Result<LeaseId, StoreError> {
    let limit = engine.find(limit).expect("it is a limit");
    let ask = Ask { limit: &limit, key: Key(b"pool"), cost };
    let taken = engine.by(ClientId::from_u64(peer)).acquire(&ask).await?;
    Ok(taken.expect("there are places").id)
}

async fn take(engine: &Engine, cost: u64) -> Result<LeaseId, StoreError> {
    take_under(engine, UNNAMED, (1, cost)).await
}

#[tokio::test]
async fn so_many_places_are_held_and_no_more() {
    let engine = engine();
    // Each by a peer of its own.
    let peer = |number: usize| (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut held = Vec::new();
    let refused = loop {
        match take_under(&engine, UNNAMED, (peer(held.len()), 1)).await {
            Ok(lease) => held.push(lease),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, StoreError::TooManyLeases { max: AD_HOC_LEASES_MAX }));
    assert!(refused.to_string().contains("release some"));
    // Where that many peers have something, the counters that they share say no a little early.
    let all = AD_HOC_LEASES_MAX - AD_HOC_LEASES_MAX / 1_000..=AD_HOC_LEASES_MAX;
    assert!(all.contains(&held.len()), "{}", held.len());
    for lease in held.drain(..100) {
        assert!(engine.release(lease).await.expect("memory answers"));
    }
    take(&engine, 1).await.expect("there is room again");
}

#[tokio::test]
async fn who_holds_places_of_a_rule_without_a_name_takes_none_from_others_or_from_names() {
    let config = "[limits.pool]\nrule = \"concurrency 1000000000\"\n";
    let config = crate::config::read(config, "t.toml").expect("it is good");
    let engine = Engine::new(&config, ServerClock::system(), &Snapshot::default());
    let mut held = 0;
    while take_under(&engine, UNNAMED, (1, 1)).await.is_ok() {
        held += 1;
    }
    assert_eq!(held, 3 * AD_HOC_LEASES_MAX / 4);
    take_under(&engine, UNNAMED, (2, 1)).await.expect("another peer has room");
    take_under(&engine, "pool", (1, 1)).await.expect("a limit with a name has its own");
}

/// A server's engine, and another one that goes on with what is written of it now.
struct Restarted {
    config: Config,
    clock: tidegate::ManualClock,
    engine: Engine,
}

impl Restarted {
    fn new() -> Self {
        let config = "[limits.pool]\nrule = \"concurrency 2 lease 30s\"\n[limits.open]\nrule = \"concurrency 2\"\n";
        let config = crate::config::read(config, "t.toml").expect("it is good");
        let clock = tidegate::ManualClock::new();
        let server_clock = ServerClock::Manual(clock.clone());
        let engine = Engine::new(&config, server_clock, &Snapshot::default());
        Self { config, clock, engine }
    }

    fn written(&self, attached: Vec<Attached>) -> Snapshot {
        let (remembered, mut bytes) = (self.engine.remembered(), Vec::new());
        let named = remembered.iter().map(|(name, limiter)| (name.as_str(), limiter));
        Snapshot::write_with(&mut bytes, named, || attached).expect("a buffer takes all");
        Snapshot::read(&bytes).expect("it is whole")
    }

    fn restart(&mut self) {
        let written = self.written(self.engine.attached());
        let clock = ServerClock::Manual(self.clock.clone());
        self.engine = Engine::new(&self.config, clock, &written);
    }

    async fn take(&self, limit: &str, key: &[u8]) -> Option<LeaseId> {
        let limit = self.engine.find(limit).expect("it is a limit");
        let ask = Ask { limit: &limit, key: Key(key), cost: 1 };
        let taken = self.engine.by(ClientId::from_u64(7)).acquire(&ask).await;
        taken.expect("memory answers").ok().map(|lease| lease.id)
    }

    async fn release(&self, lease: Option<LeaseId>) -> bool {
        self.engine.release(lease.expect("it was taken")).await.expect("memory answers")
    }

    fn kept(&self) -> usize {
        self.engine.leases.kept.lock().expect("nobody panics").permits.len()
    }
}

#[tokio::test]
async fn a_place_that_comes_back_after_a_restart_is_given_back_once_and_in_its_place() {
    let mut server = Restarted::new();
    let first = server.take("pool", b"a").await;
    let other = server.take("pool", b"b").await;
    let unnamed = server.take("concurrency 1 lease 20s", b"a").await;
    server.clock.advance(Span::from_secs(10));
    let second = server.take("pool", b"a").await;
    let free = server.take("open", b"a").await;
    for _ in 0..3 {
        server.restart();
        assert_eq!(server.kept(), 4, "who holds a place without a lease is not known");
    }
    assert_eq!(server.take("pool", b"a").await, None, "both places are taken");
    assert!(server.release(first).await);
    assert!(!server.release(first).await, "once");
    assert!(!server.release(free).await, "its place came back with the restart");
    let third = server.take("pool", b"a").await;
    assert!(third.is_some() && third != first, "one place is free, under another id");
    assert_eq!(server.take("pool", b"a").await, None, "and no more than one");
    assert!(server.release(unnamed).await && server.release(other).await);
    assert!(server.take("concurrency 1 lease 20s", b"a").await.is_some());
    server.restart();
    server.clock.advance(Span::from_secs(25));
    assert!(server.release(second).await, "it lasts until 30 s after it was taken");
    server.clock.advance(Span::from_secs(5));
    assert!(!server.release(third).await, "its lease has run out");
    assert_eq!(server.engine.leases.named.taken(), 0, "nobody has a place less for it");
}

#[tokio::test]
async fn a_reset_after_a_restart_forgets_who_holds_places() {
    let mut server = Restarted::new();
    let first = server.take("pool", b"a").await;
    server.restart();
    let limit = server.engine.find("pool").expect("it is there");
    server.engine.reset(&limit, Key(b"a")).await.expect("memory answers");
    assert!(!server.release(first).await);
}

#[tokio::test]
async fn a_snapshot_without_leases_or_with_such_as_nobody_understands_is_used_without_them() {
    let mut server = Restarted::new();
    let first = server.take("pool", b"a").await;
    let [rules, (name, bytes)] = <[_; 2]>::try_from(server.engine.attached()).expect("both");
    let cut_off = bytes[..bytes.len() - 1].to_vec();
    for attached in [Vec::new(), vec![rules, (name, cut_off)]] {
        let written = server.written(attached);
        let clock = ServerClock::Manual(server.clock.clone());
        let engine = Engine::new(&server.config, clock, &written);
        let limit = engine.find("pool").expect("it is there");
        let ask = Ask { limit: &limit, key: Key(b"a"), cost: 2 };
        assert!(engine.acquire(&ask).await.expect("memory answers").is_err(), "it is held");
    }
    server.restart();
    assert!(server.release(first).await);
}

#[tokio::test]
async fn a_reset_forgets_who_holds_places_there_and_nobody_else() {
    let engine = engine();
    let of = |text: &str| engine.find(text).expect("it is a rule");
    let (limit, other) = (of("concurrency 2"), of("concurrency 3"));
    let mut ids = Vec::new();
    for (limit, key) in [(&limit, "a"), (&limit, "a"), (&limit, "b"), (&other, "a")] {
        let ask = Ask { limit, key: Key(key.as_bytes()), cost: 1 };
        ids.push(engine.acquire(&ask).await.expect("memory answers").expect("a place").id);
    }
    engine.reset(&limit, Key(b"a")).await.expect("memory answers");
    assert_eq!(engine.leases.kept.lock().expect("nobody panics").permits.len(), 2);
    let ask = Ask { limit: &limit, key: Key(b"a"), cost: 2 };
    let both = engine.acquire(&ask).await.expect("memory answers").expect("both places").id;
    let mut released = Vec::new();
    for id in ids {
        released.push(engine.release(id).await.expect("memory answers"));
    }
    assert_eq!(released, [false, false, true, true]);
    let ask = Ask { cost: 1, ..ask };
    assert!(engine.acquire(&ask).await.expect("memory answers").is_err(), "both are taken");
    assert!(engine.release(both).await.expect("memory answers"));
}

#[tokio::test]
async fn a_place_that_costs_nothing_is_not_remembered() {
    let engine = engine();
    let free = take(&engine, 0).await.expect("it costs nothing");
    assert!(engine.leases.kept.lock().expect("nobody panics").permits.is_empty());
    assert!(!engine.release(free).await.expect("memory answers"), "there is nothing to give back");
}

/// It was a look at every lease, under the lock that all who take places need.
#[tokio::test]
async fn a_reset_of_a_key_that_nobody_holds_looks_at_no_leases() {
    const HELD: u64 = 50_000;
    const RESETS: usize = 50_000;
    let engine = engine();
    for number in 0..HELD {
        take_under(&engine, UNNAMED, (number / 100, 1)).await.expect("there is room");
    }
    let limit = engine.find(UNNAMED).expect("it is a limit");
    let clock = ServerClock::system();
    let start = clock.now();
    for _ in 0..RESETS {
        engine.reset(&limit, Key(b"nobody")).await.expect("memory answers");
    }
    let took = clock.now().since(start);
    // Were each of them to look at all leases, it would take minutes.
    assert!(took < Span::from_secs(10), "{took}");
}

#[tokio::test]
async fn leases_that_end_together_are_given_back_little_by_little_and_all_of_them() {
    let clock = tidegate::ManualClock::new();
    let server_clock = ServerClock::Manual(clock.clone());
    let engine = Engine::new(&Config::default(), server_clock, &Snapshot::default());
    let limit = "concurrency 1000000000 lease 1s";
    for number in 0..3 * ENDED_AT_ONCE as u64 {
        take_under(&engine, limit, (number / 10, 1)).await.expect("there is room");
    }
    clock.advance(Span::from_secs(2));
    let mut kept = vec![engine.leases.lock().permits.len()];
    for _ in 0..3 {
        take_under(&engine, limit, (1, 1)).await.expect("there is room");
        kept.push(engine.leases.lock().permits.len());
    }
    let left = |rounds: usize| (3 - rounds) * ENDED_AT_ONCE + rounds;
    assert_eq!(kept, [0, 1, 2, 3].map(left));
}
