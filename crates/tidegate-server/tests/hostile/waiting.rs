//! T47: more requests than the store can decide in time, over each protocol.
//!
//! The store answers after a while, so capacity is a number: as many as may wait, each for that while. A machine that is
//! busy with other things makes it less, but not the share of it that is kept under three times the load.

use crate::asker::Asker;
use crate::harness::{Served, alone, config, run_alone, secs};
use crate::pace::{assert_mostly, p99};
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
const EXCESS_MAX: Duration = Duration::from_millis(10);

/// A server in front of a Redis that is far away.
struct Far {
    running: Served,
    _redis: RedisServer,
    _proxy: FaultProxy,
    _runtime: tokio::runtime::Runtime,
}

impl Far {
    fn new() -> Self {
        let alone = alone();
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
        // Who asks here shares its core with fifty others: that it is slow is not what is tested.
        (config.server.caps.first_byte, config.server.caps.request) = (secs(30), secs(30));
        let settings = settings.deadline(secs(10));
        let server = runtime.block_on(async {
            let redis = RedisStore::connect_with(&address, settings).await;
            Server::shared(config, None, ServerClock::system(), redis)
        });
        let running = run_alone(alone, server);
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
    fn of(wire: Wire, askers: usize, step: Duration, running: &Running) -> Self {
        let (load, since) = (Self::default(), Instant::now());
        std::thread::scope(|scope| {
            for _ in 0..askers {
                scope.spawn(|| {
                    let mut asker = Asker::new(wire, running);
                    while since.elapsed() < TIME {
                        let began = Instant::now();
                        load.ask_again(&mut asker);
                        std::thread::park_timeout(step.saturating_sub(began.elapsed()));
                    }
                });
            }
        });
        load
    }

    fn ask_again(&self, asker: &mut Asker) {
        for _ in 0..4 {
            let began = Instant::now();
            if asker.ask() {
                self.decided.fetch_add(1, Ordering::Relaxed);
                return;
            }
            self.refused.lock().unwrap().push(began.elapsed());
        }
    }

    /// Returns the mean time between decisions.
    fn decides_in(&self) -> Duration {
        let decided = self.decided.load(Ordering::Relaxed);
        TIME / u32::try_from(decided).expect("it fits")
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
    let far = Far::new();
    for wire in [Wire::Resp, Wire::Http, Wire::Grpc] {
        // Others share the machine, so each crowd is held against what was possible just before.
        assert_mostly(&wire.to_string(), || {
            let peak =
                WaitingLoad::of(wire, WAITING_MAX, Duration::ZERO, &far.running).decides_in();
            let crowded = WaitingLoad::of(wire, 3 * WAITING_MAX, DELAY, &far.running);
            // At least four fifths of it.
            let goodput = (crowded.decides_in(), peak * 5 / 4);
            let refused = crowded.refused();
            assert!(refused.len() > 100, "only {} were refused", refused.len());
            [goodput, (p99(&refused), EXCESS_MAX)]
        });
        // The load is gone, and with it all that it has left: four fifths are not refused, not even at first.
        let since = Instant::now();
        let recovers = (0..ROUNDS).any(|_| {
            WaitingLoad::of(wire, WAITING_MAX * 8 / 10, DELAY, &far.running).refused().is_empty()
        });
        assert!(recovers && since.elapsed() < secs(5), "{wire}: after {:?}", since.elapsed());
    }
    assert_eq!(far.running.server.status.waiting.load(Ordering::Relaxed), 0);
    far.running.stop().unwrap();
}
