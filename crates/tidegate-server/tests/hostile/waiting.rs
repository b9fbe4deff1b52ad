//! T47: more requests than the store can decide in time, over each protocol.
//!
//! Redis answers after [`DELAY`], so the capacity is known: [`WAITING_MAX`] requests per delay. A busy machine lowers it, but
//! not the part of it that the server keeps under three times the load.

use crate::check_client::CheckClient;
use crate::harness::{TestServer, config, exclusive, run_exclusive, secs};
use crate::latency::{assert_medians, p99};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidegate_redis::RedisStore;
use tidegate_server::clock::ServerClock;
use tidegate_server::config;
use tidegate_server::net::{Running, Wire};
use tidegate_server::server::Server;
use tidegate_testbed::{Fault, FaultProxy, RedisServer};

const WAITING_MAX: usize = 16;
const DELAY: Duration = Duration::from_millis(50);
const TIME: Duration = Duration::from_millis(450);
const ROUNDS: usize = 6;
const REFUSAL_TIME_MAX: Duration = Duration::from_millis(10);

/// A server with a Redis behind a proxy that delays each reply.
struct DelayedStore {
    running: TestServer,
    _redis: RedisServer,
    _proxy: FaultProxy,
    _runtime: tokio::runtime::Runtime,
}

impl DelayedStore {
    fn new() -> Self {
        let guard = exclusive();
        let (redis, runtime) = (RedisServer::start(), tokio::runtime::Runtime::new().unwrap());
        let proxy = FaultProxy::to(redis.address());
        let text = format!(
            "[store]\nurl = \"{}\"\n[limits.all]\nrule = \"1000000/s\"\n\
             domain = \"d\"\ndescriptor = [\"a\"]\n",
            proxy.url()
        );
        let read = config::read(&text, "t.toml").unwrap_or_else(|error| panic!("{error}"));
        let (address, settings) = config::store_client(&read.store.clone().unwrap());
        let mut config = config::Config { server: config().server, ..read };
        config.server.caps.waiting_max = WAITING_MAX;
        // Long time limits, because each client shares its core with fifty others and may be slow.
        (config.server.caps.first_byte, config.server.caps.request) = (secs(30), secs(30));
        let settings = settings.deadline(secs(10));
        let server = runtime.block_on(async {
            let redis = RedisStore::connect_with(&address, settings).await;
            Server::shared(config, None, ServerClock::system(), redis)
        });
        let running = run_exclusive(guard, server);
        proxy.set(Fault::Delay(DELAY));
        Self { running, _redis: redis, _proxy: proxy, _runtime: runtime }
    }
}

/// The results of clients that send requests for a while.
#[derive(Default)]
struct WaitingLoad {
    decided: AtomicU64,
    /// Durations until a rejection.
    refused: Mutex<Vec<Duration>>,
}

impl WaitingLoad {
    /// Runs clients that send a request at each step, and retry at once up to three times after a rejection.
    fn of(wire: Wire, clients: usize, step: Duration, running: &Running) -> Self {
        let (load, since) = (Self::default(), Instant::now());
        std::thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| {
                    let mut client = CheckClient::new(wire, running);
                    while since.elapsed() < TIME {
                        let began = Instant::now();
                        load.check_with_retries(&mut client);
                        std::thread::park_timeout(step.saturating_sub(began.elapsed()));
                    }
                });
            }
        });
        load
    }

    fn check_with_retries(&self, client: &mut CheckClient) {
        for _ in 0..4 {
            let began = Instant::now();
            if client.check() {
                self.decided.fetch_add(1, Ordering::Relaxed);
                return;
            }
            self.refused.lock().unwrap().push(began.elapsed());
        }
    }

    /// Returns the mean time between decisions.
    fn time_per_decision(&self) -> Duration {
        let decided = self.decided.load(Ordering::Relaxed);
        TIME / u32::try_from(decided).expect("the number of decisions is small")
    }

    /// Returns the durations until rejections, sorted.
    fn refused(self) -> Vec<Duration> {
        let mut refused = self.refused.into_inner().unwrap();
        refused.sort_unstable();
        refused
    }
}

// T47
#[test]
fn three_times_what_the_store_decides_is_refused_fast_and_the_rest_is_decided() {
    let delayed = DelayedStore::new();
    for wire in [Wire::Resp, Wire::Http, Wire::Grpc] {
        // Other processes share the machine, so each overload is compared with the peak measured just before it.
        assert_medians(&wire.to_string(), || {
            let peak = WaitingLoad::of(wire, WAITING_MAX, Duration::ZERO, &delayed.running)
                .time_per_decision();
            let overloaded = WaitingLoad::of(wire, 3 * WAITING_MAX, DELAY, &delayed.running);
            // At least four fifths of the peak.
            let goodput = (overloaded.time_per_decision(), peak * 5 / 4);
            let refused = overloaded.refused();
            assert!(refused.len() > 100, "only {} were refused", refused.len());
            [goodput, (p99(&refused), REFUSAL_TIME_MAX)]
        });
        // The overload has ended, and the server has recovered: it refuses no request at four fifths of the capacity.
        let since = Instant::now();
        let recovers = (0..ROUNDS).any(|_| {
            WaitingLoad::of(wire, WAITING_MAX * 8 / 10, DELAY, &delayed.running)
                .refused()
                .is_empty()
        });
        assert!(recovers && since.elapsed() < secs(5), "{wire}: after {:?}", since.elapsed());
    }
    assert_eq!(delayed.running.server.status.waiting.load(Ordering::Relaxed), 0);
    delayed.running.stop().unwrap();
}
