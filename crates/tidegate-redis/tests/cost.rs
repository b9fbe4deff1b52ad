//! T36: what a decision costs Redis. Commands and bytes are counted: a busy machine cannot change them.

use std::time::Duration;
use tidegate_redis::{RedisLimiter, RedisStore, Settings};
use tidegate_testbed::{RedisServer, Reply};

/// Rows that a key may have room for, whoever holds it: so few are not worth a copy.
const SPARE_ROWS: i64 = 33;
const HEADER_BYTES: i64 = 72;
const HOLD_BYTES: i64 = 32;
const LOG_BYTES: i64 = 16;

/// Nothing is to be decided without Redis, however busy the machine is.
async fn store(server: &RedisServer) -> RedisStore {
    let address = server.url().parse().expect("a server has an address");
    let settings = Settings::default().deadline(Duration::from_secs(30)).connections(1);
    RedisStore::connect_with(&address, settings).await
}

async fn limiter(store: &RedisStore, name: &str, rule: &str) -> RedisLimiter {
    let rule = rule.parse().unwrap_or_else(|error| panic!("{error}"));
    let limiter = store.limiter(name, rule).expect("Redis can keep it");
    limiter.ready().await.expect("it answers");
    limiter
}

fn bytes(server: &RedisServer, key: &str) -> i64 {
    match server.command(&["STRLEN", key]) {
        Reply::Integer(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// What so many rows may take: as much again may have gone and not been given back yet.
fn most_bytes(rows: i64, row_bytes: i64) -> i64 {
    HEADER_BYTES + row_bytes * (2 * rows + 1).max(SPARE_ROWS)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t36_one_who_stays_while_ten_thousand_come_and_go_takes_no_more_room_than_those_who_are_there()
 {
    let server = RedisServer::start();
    let store = store(&server).await;
    for rule in ["concurrency 1000", "concurrency 1000 lease 1h"] {
        server.command(&["FLUSHALL"]);
        let limiter = limiter(&store, "stays", rule).await;
        let stays = limiter.try_acquire("key", 9).await.expect("there is room");
        let mut before = limiter.try_acquire("key", 9).await.expect("there is room");
        let mut most = 0;
        for number in 0..10_000 {
            let next = limiter.try_acquire("key", 9).await.expect("there is room");
            most = most.max(bytes(&server, "tg:{key}:stays"));
            assert!(std::mem::replace(&mut before, next).release().await, "{number} was held");
        }
        assert!(most <= most_bytes(3, HOLD_BYTES), "`{rule}`: {most} bytes for three");
        let left = limiter.peek("key", 0).await.expect("it answers").remaining;
        assert_eq!(left, 1000 - 18, "`{rule}`: two hold nine each");
        assert!(stays.release().await && before.release().await, "`{rule}`: they were held");
        assert_eq!(bytes(&server, "tg:{key}:stays"), 0, "`{rule}`: nobody is left");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t36_when_many_have_gone_their_room_is_given_back_in_whatever_order_they_went() {
    const ALL: usize = 500;
    let server = RedisServer::start();
    let store = store(&server).await;
    // The first come first, the last first, and by steps through the middle.
    for (name, step) in [("first", 1), ("last", ALL - 1), ("mixed", 7)] {
        let limiter = limiter(&store, name, "concurrency 1000 lease 1h").await;
        let mut held = Vec::new();
        for _ in 0..ALL {
            held.push(Some(limiter.try_acquire("key", 1).await.expect("there is room")));
        }
        let mut place = 0;
        for left in (1..=ALL).rev() {
            place = (place + step) % ALL;
            let permit = held[place].take().expect("each goes once");
            assert!(permit.release().await, "{name}: {left} were held");
            let rows = i64::try_from(left - 1).expect("it is small");
            let taken = bytes(&server, &format!("tg:{{key}}:{name}"));
            assert!(taken <= most_bytes(rows, HOLD_BYTES), "{name}: {taken} bytes for {rows}");
            let free = limiter.peek("key", 0).await.expect("it answers").remaining;
            assert_eq!(free, 1000 - (left as u64 - 1), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t36_a_log_takes_no_more_room_than_what_counts() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let limiter = limiter(&store, "log", "50/20ms sliding-log").await;
    let mut most = 0;
    for _ in 0..10_000 {
        limiter.try_check("key", 1).await.expect("it answers");
        most = most.max(bytes(&server, "tg:{key}:log"));
    }
    assert!(most <= most_bytes(50, LOG_BYTES), "{most} bytes for fifty");
}
