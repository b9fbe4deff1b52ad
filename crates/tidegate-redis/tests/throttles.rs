//! `CL.THROTTLE` in Redis gives the numbers that it gives in memory, with a clock that the test controls.
//!
//! `TIDEGATE_SEQUENCES` is the number of sequences of requests.

use std::time::Duration;
use tidegate::throttle::{Throttle, Throttles};
use tidegate::{ManualClock, Span, Timestamp};
use tidegate_redis::{RedisStore, Settings};
use tidegate_testbed::{Fault, FaultProxy, Random, RedisServer};

const REQUESTS: u64 = 16;
const START: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);

/// Mostly small, and now and then large.
fn size(random: &mut Random, bits_max: u64) -> i64 {
    let bits = random.below(bits_max) + 1;
    i64::try_from(random.next() >> (64 - bits)).expect("it has few bits").max(1)
}

fn throttle(random: &mut Random) -> Throttle {
    let quantity = match random.below(8) {
        0 => 0,
        1 => -size(random, 6),
        2 => size(random, 12),
        _ => size(random, 3),
    };
    let burst = if random.below(16) == 0 { -size(random, 3) } else { size(random, 12) };
    let (count, period) = (size(random, 20), size(random, 17));
    // A rate above one per nanosecond is invalid.
    Throttle::new(burst, count, period, quantity)
        .unwrap_or_else(|_| Throttle::new(burst, 7, 3, quantity).expect("it is a rate"))
}
async fn connect(server: &RedisServer, clock: &ManualClock) -> RedisStore {
    let address = server.url().parse().expect("a server has an address");
    // Long, since no request may be decided without Redis on a busy machine.
    let settings = Settings::default().deadline(Duration::from_secs(30)).connections(1);
    RedisStore::connect_with_clock(&address, settings, clock.clone()).await
}

#[tokio::test]
async fn a_debt_of_more_than_146_years_is_denied_as_in_memory() {
    let server = RedisServer::start();
    let clock = ManualClock::at(START);
    let store = connect(&server, &clock).await;
    let memory = Throttles::with_clock(clock.clone());
    let shared = store.throttles(Throttles::with_clock(clock.clone()), 1);
    let yearly = |quantity| Throttle::new(199, 1, 31_536_000, quantity).expect("it is a rate");
    for place in 0..160 {
        let throttle = yearly(i64::from(place % 50 != 49));
        let expected = memory.check(b"key", &throttle);
        let got = shared.try_check(b"key", &throttle).await.expect("Redis answers");
        assert_eq!(got, expected, "{place}");
    }
    assert!(memory.check(b"key", &yearly(1)).is_limited, "it came so far");
}

#[tokio::test]
async fn redis_and_memory_give_the_same_numbers() {
    let server = RedisServer::start();
    let clock = ManualClock::at(START);
    let store = connect(&server, &clock).await;
    let shared = store.throttles(Throttles::with_clock(clock.clone()), 1);
    let sequences = std::env::var("TIDEGATE_SEQUENCES")
        .map_or(2_000, |text| text.parse().expect("TIDEGATE_SEQUENCES is a number"));
    for seed in 0..sequences {
        let memory = Throttles::with_clock(clock.clone());
        let (mut random, key) = (Random(seed), seed.to_string());
        let usual = throttle(&mut random);
        for place in 0..REQUESTS {
            let throttle = if random.below(4) == 0 { throttle(&mut random) } else { usual };
            if random.below(24) == 0 {
                let reset = shared.reset(key.as_bytes()).await.expect("Redis answers");
                // With a clock of a test, a key lives a day longer than its debt.
                let has_owed = memory.reset(key.as_bytes());
                assert!(reset || !has_owed, "seed {seed}, reset {place}");
            }
            let expected = memory.check(key.as_bytes(), &throttle);
            let got = shared.try_check(key.as_bytes(), &throttle).await.expect("Redis answers");
            assert_eq!(got, expected, "seed {seed}, request {place}: {throttle:?}");
            let reset_after = u64::try_from(expected.reset_after).expect("it is a time");
            let step = match random.below(6) {
                0 => 0,
                1 => 1,
                2 => reset_after * 1_000_000,
                3 => random.below(2_000),
                _ => random.below(reset_after * 1_000_000 / 4 + 1),
            };
            clock.advance(Span::from_micros(step));
        }
    }
}

#[tokio::test]
async fn a_key_lives_as_long_as_its_debt_and_has_the_documented_name() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.expect("it is an address");
    let throttles = store.throttles(Throttles::new(), 1);
    let one_a_minute = Throttle::new(0, 1, 60, 1).expect("it is a rate");
    assert!(!throttles.check(b"user:1", &one_a_minute).await.is_limited);
    assert!(throttles.check(b"user:1", &one_a_minute).await.is_limited);
    let tidegate_testbed::Reply::Integer(ms) = server.command(&["PTTL", "tg:{user:1}:cl:throttle"])
    else {
        panic!("a life is a number");
    };
    assert!((50_000..=60_001).contains(&ms), "{ms} ms");
    assert!(throttles.reset(b"user:1").await.expect("Redis answers"));
    assert!(!throttles.reset(b"user:1").await.expect("Redis answers"));
    let stats = throttles.stats();
    assert_eq!((stats.allowed, stats.denied, stats.failed), (1, 1, 0));
}

#[tokio::test]
async fn without_redis_the_share_decides_and_counts_what_redis_admitted() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.expect("it is an address");
    let throttles = store.throttles(Throttles::new(), 2);
    let four_an_hour = Throttle::new(3, 4, 3_600, 1).expect("it is a rate");
    assert!(!throttles.check(b"k", &four_an_hour).await.is_limited);
    server.kill();
    let mut admitted = 0;
    for _ in 0..10 {
        admitted += u32::from(!throttles.check(b"k", &four_an_hour).await.is_limited);
    }
    assert_eq!(admitted, 1, "of the two that are this node's, Redis has admitted one");
    assert!(throttles.stats().failed > 0);
}

#[tokio::test]
async fn try_check_charges_the_share_too() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.expect("it is an address");
    let throttles = store.throttles(Throttles::new(), 2);
    let four_an_hour = Throttle::new(3, 4, 3_600, 1).expect("it is a rate");
    for _ in 0..2 {
        let asked = throttles.try_check(b"k", &four_an_hour).await;
        assert!(!asked.expect("Redis answers").is_limited);
    }
    server.kill();
    assert!(throttles.check(b"k", &four_an_hour).await.is_limited, "both were this node's");
    assert!(throttles.stats().failed > 0);
}

/// Redis does not know of admissions without it, and would admit as much again.
#[tokio::test]
async fn requests_admitted_without_redis_are_not_admitted_again() {
    let server = RedisServer::start();
    let clock = ManualClock::at(START);
    let proxy = FaultProxy::to(server.address());
    let address = proxy.url().parse().expect("it is an address");
    let settings = Settings::default().deadline(Duration::from_secs(5));
    let store = RedisStore::connect_with(&address, settings).await;
    let throttles = store.throttles(Throttles::with_clock(clock.clone()), 2);
    let four_an_hour = Throttle::new(3, 4, 3_600, 1).expect("it is a rate");
    let admitted = async |key: &[u8]| {
        let mut admitted = 0;
        for _ in 0..10 {
            admitted += u32::from(!throttles.check(key, &four_an_hour).await.is_limited);
        }
        admitted
    };
    proxy.set(Fault::Refuse);
    while throttles.try_check(b"probe", &four_an_hour).await.is_ok() {}
    assert_eq!(admitted(b"k").await, 2, "this node's share");
    proxy.set(Fault::Pass);
    while throttles.try_check(b"probe", &four_an_hour).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let failed = throttles.stats().failed;
    assert_eq!(admitted(b"k").await, 0);
    assert_eq!(admitted(b"other").await, 4, "nothing was admitted to it, so it is Redis's");
    clock.advance(Span::from_secs(1_800));
    assert_eq!(admitted(b"k").await, 1, "the share has one again");
    assert_eq!(throttles.stats().failed, failed, "Redis was there");
    assert!(throttles.reset(b"k").await.expect("Redis answers"));
    assert_eq!(admitted(b"k").await, 4, "what is forgotten counts no more");
}
