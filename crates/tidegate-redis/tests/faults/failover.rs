//! T27: the primary is killed under load, and a replica takes its place.
//!
//! Bound    A replica may lag, so each failover may admit one extra burst. The clients count the admissions, over the time that
//!          they measure.
//!
//! `TIDEGATE_FULL=1` requires that Redis decides again a second after the election, which takes a machine of its own.

use crate::cluster::address;
use crate::stage::{PATIENT, becomes, limiter_with, ready, store_at};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidegate_redis::{DecisionSource, OnError, RedisLimiter, Settings};
use tidegate_testbed::{Cluster, Sentinels};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const NODES: u64 = 4;
const CLIENTS: u64 = 200;
const KEYS: usize = 1_000;
/// A client pauses after this many requests: denials without Redis take no time, and the reconnect task needs some.
const PACE: usize = 50;
const BURST: u64 = 10;
const RATE: u64 = 5;
const FAILOVERS: u64 = 1;
/// The timeout of an election, which takes seconds.
const FAILOVER: Duration = Duration::from_secs(30);
/// The time until Redis decides about every key again: the requirement, and on a machine that is busy with other tests.
const RECOVERY: Duration = Duration::from_secs(1);
const RECOVERY_OF_A_BUSY_MACHINE: Duration = Duration::from_secs(3);

/// For each key, how many requests were admitted, and how many Redis has decided.
struct Counts {
    admitted: Vec<AtomicU64>,
    shared: Vec<AtomicU64>,
    is_over: AtomicBool,
}

struct Load {
    counts: Arc<Counts>,
    limiters: Vec<RedisLimiter>,
    clients: JoinSet<()>,
    began: Instant,
}

impl Load {
    /// Starts clients on several nodes, which send requests about all keys.
    async fn start(address: &str, on_error: OnError) -> Self {
        let zeros = || (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        let counts = Counts { admitted: zeros(), shared: zeros(), is_over: AtomicBool::new(false) };
        let counts = Arc::new(counts);
        let mut limiters = Vec::new();
        for _ in 0..NODES {
            let store = store_at(address, Settings::default().deadline(PATIENT / 10)).await;
            let rule = format!("{RATE}/s burst {BURST}");
            let limiter = limiter_with(&store, "failover", &rule, on_error);
            ready(&limiter).await;
            limiters.push(limiter);
        }
        let (mut clients, began) = (JoinSet::new(), Instant::now());
        for (client, limiter) in (0..CLIENTS).zip(limiters.iter().cycle()) {
            clients.spawn(ask(limiter.clone(), client, Arc::clone(&counts)));
        }
        Self { counts, limiters, clients, began }
    }

    /// Waits until Redis has decided about every key again.
    async fn is_served(&self, within: Duration) {
        let before = read(&self.counts.shared);
        becomes("Redis decides about every key", within, async || {
            before.iter().zip(read(&self.counts.shared)).all(|(before, now)| *before < now)
        })
        .await;
    }

    /// Waits until Redis decides almost all requests; on a busy machine some time out.
    async fn is_well(&self) {
        let failed = || self.limiters.iter().map(|limiter| limiter.stats().failed).sum::<u64>();
        let before = failed();
        sleep(Duration::from_millis(500)).await;
        let more = failed() - before;
        assert!(
            more == 0 || !is_full(),
            "{more} were decided without Redis, and there was a primary"
        );
    }

    /// Checks that every key is within its bound, and that there was load.
    async fn end(mut self) {
        self.counts.is_over.store(true, Ordering::Relaxed);
        while let Some(client) = self.clients.join_next().await {
            client.expect("no client panics");
        }
        let ran = self.began.elapsed();
        let micros = u64::try_from(ran.as_micros()).expect("it is seconds");
        let refilled = (RATE * micros).div_ceil(1_000_000);
        let bound = (1 + FAILOVERS) * BURST + refilled;
        let admitted = read(&self.counts.admitted);
        let (least, most) = (admitted.iter().min(), admitted.iter().max());
        let (least, most) = least.zip(most).expect("there are keys");
        assert!(*most <= bound, "{most} of {bound} in {ran:?}: {admitted:?}");
        assert!(*least >= BURST, "{least} in {ran:?}: there was no load");
    }
}

fn is_full() -> bool {
    std::env::var_os("TIDEGATE_FULL").is_some()
}

/// Returns how long shares go on deciding, until their admissions have drained.
fn recovery(on_error: OnError) -> Duration {
    let drains = Duration::from_secs(BURST / RATE);
    match on_error {
        _ if !is_full() => RECOVERY_OF_A_BUSY_MACHINE,
        OnError::Local { .. } => RECOVERY + drains,
        _ => RECOVERY,
    }
}

fn read(counts: &[AtomicU64]) -> Vec<u64> {
    counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
}

async fn ask(limiter: RedisLimiter, client: u64, counts: Arc<Counts>) {
    let first = usize::try_from(client).expect("it is small") * 7;
    while !counts.is_over.load(Ordering::Relaxed) {
        for place in 0..KEYS {
            let key = (first + place) % KEYS;
            let told = limiter.decide(format!("key-{key}").as_bytes(), 1).await;
            if !told.decision.is_deny() {
                counts.admitted[key].fetch_add(1, Ordering::Relaxed);
            }
            if told.source == DecisionSource::Redis {
                counts.shared[key].fetch_add(1, Ordering::Relaxed);
            }
            if place % PACE == 0 {
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

fn address_of(sentinels: &Sentinels) -> String {
    let hosts: Vec<String> =
        sentinels.sentinel_addresses().iter().map(ToString::to_string).collect();
    format!("redis+sentinel://{}/{}", hosts.join(","), sentinels.master_name())
}

/// T27. The old primary answers and calls itself a primary, as after a network partition.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_sentinels_have_replaced_is_not_used_although_it_answers() {
    let sentinels = Sentinels::with_replicas(1);
    let store = store_at(&address_of(&sentinels), Settings::default().deadline(PATIENT)).await;
    let limiter = limiter_with(&store, "isolated", "10/h burst 10", OnError::Deny);
    ready(&limiter).await;
    let old = sentinels.primary();
    let new = tidegate_testbed::RedisServer::start();
    let name = sentinels.master_name();
    for sentinel in sentinels.sentinels() {
        sentinel.command(&["SENTINEL", "REMOVE", name]);
        let port = new.port().to_string();
        let told = sentinel.command(&["SENTINEL", "MONITOR", name, "127.0.0.1", &port, "2"]);
        assert!(told.is_ok(), "{told:?}");
    }
    becomes("the new one is asked", PATIENT * 2, async || {
        let _ = limiter.check("key").await;
        new.command(&["EXISTS", "tg:{key}:isolated"]).text() == "1"
    })
    .await;
    assert!(old.command(&["PING"]).text().contains("PONG"), "it would have answered");
    assert!(
        store.health()[0].is_up && store.health()[0].address.ends_with(&new.port().to_string())
    );
}

const POLICIES: [OnError; 2] = [OnError::Deny, OnError::Local { nodes: NODES }];

/// T27.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_by_sentinels_admits_at_most_one_extra_burst() {
    for on_error in POLICIES {
        let sentinels = Sentinels::start();
        let load = Load::start(&address_of(&sentinels), on_error).await;
        load.is_served(PATIENT).await;
        load.is_well().await;
        sentinels.kill_primary();
        sentinels.wait_for_new_primary(FAILOVER);
        load.is_served(recovery(on_error)).await;
        load.is_well().await;
        load.end().await;
    }
}

/// T27.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_in_a_cluster_admits_at_most_one_extra_burst() {
    for on_error in POLICIES {
        let cluster = Cluster::start();
        let load = Load::start(&address(&cluster), on_error).await;
        load.is_served(PATIENT).await;
        load.is_well().await;
        cluster.kill_primary_of_slot(cluster.slot_of("tg:{key-0}:failover"));
        cluster.wait_until_ok(FAILOVER);
        load.is_served(recovery(on_error)).await;
        load.is_well().await;
        load.end().await;
    }
}
