//! T36: the cost of a decision in Redis, as counts of commands and bytes, which do not depend on the machine.
//!
//! `TIDEGATE_DECISIONS` is how many decisions Redis times: 20 000 in the test command, 10 000 000 for the requirement.

use std::collections::BTreeMap;
use std::time::Duration;
use tidegate::ManualClock;
use tidegate_redis::{RedisLimiter, RedisStore, Settings, try_check_all};
use tidegate_testbed::{RedisServer, Reply};

/// The number of rows up to which a key is not compacted.
const SPARE_ROWS: i64 = 33;
const HEADER_BYTES: i64 = 72;
const HOLD_BYTES: i64 = 40;
const LOG_BYTES: i64 = 16;

/// A rule of each algorithm that admits all requests of these tests.
const RULES: [&str; 11] = [
    "100000/h burst 100000",
    "100000/h leaky capacity 100000",
    "100000/h queue capacity 100000",
    "100000/h fixed",
    "100000/day calendar",
    "100000/h sliding",
    "100000/h sliding-log",
    "100000/h smooth",
    "100000/h warmup 1s",
    "100000r/s burst=100000 nodelay",
    "concurrency 100000 lease 1h",
];
/// The most commands in a decision: a cell is read and written, a list's header and some of its rows as well.
const COMMANDS_MAX: f64 = 12.0;
/// The time that a decision may take on the server, and the time that it must not reach.
const USUAL_US: f64 = 20.0;
/// The maximum number of times that a rule is read during a test.
const RULE_ASKED_MAX: u64 = 30;
const SLOW_US: &str = "1000";

/// The deadline is long, since no request may be decided without Redis.
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

/// Returns the largest size of a key with this many rows: as many dead rows may be left.
fn most_bytes(rows: i64, row_bytes: i64) -> i64 {
    HEADER_BYTES + row_bytes * (2 * rows + 1).max(SPARE_ROWS)
}

/// T36.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_held_through_ten_thousand_others_keeps_no_dead_rows() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for rule in ["concurrency 1000", "concurrency 1000 lease 1h"] {
        server.command(&["FLUSHALL"]);
        let limiter = limiter(&store, "stays", rule).await;
        let stays = limiter.request("key").cost(9).try_acquire().await.expect("there is room");
        let mut before = limiter.request("key").cost(9).try_acquire().await.expect("there is room");
        let mut most = 0;
        for number in 0..10_000 {
            let next = limiter.request("key").cost(9).try_acquire().await.expect("there is room");
            most = most.max(bytes(&server, "tg:{key}:stays"));
            let released = std::mem::replace(&mut before, next).release().await;
            assert!(released.expect("it answers"), "{number} was held");
        }
        assert!(most <= most_bytes(3, HOLD_BYTES), "`{rule}`: {most} bytes for three");
        let left = limiter.request("key").cost(0).peek().await.expect("it answers").remaining;
        assert_eq!(left, 1000 - 18, "`{rule}`: two hold nine each");
        for permit in [stays, before] {
            assert!(permit.release().await.expect("it answers"), "`{rule}`: they were held");
        }
        assert_eq!(bytes(&server, "tg:{key}:stays"), 0, "`{rule}`: no permit is held");
    }
}

/// T36.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_permits_free_their_memory_in_any_order() {
    const ALL: usize = 500;
    let server = RedisServer::start();
    let store = store(&server).await;
    // Oldest first, newest first, and by steps through the middle.
    for (name, step) in [("first", 1), ("last", ALL - 1), ("mixed", 7)] {
        let limiter = limiter(&store, name, "concurrency 1000 lease 1h").await;
        let mut held = Vec::new();
        for _ in 0..ALL {
            held.push(Some(limiter.try_acquire("key").await.expect("there is room")));
        }
        let mut place = 0;
        for left in (1..=ALL).rev() {
            place = (place + step) % ALL;
            let permit = held[place].take().expect("each goes once");
            assert!(permit.release().await.expect("it answers"), "{name}: {left} were held");
            let rows = i64::try_from(left - 1).expect("it is small");
            let taken = bytes(&server, &format!("tg:{{key}}:{name}"));
            assert!(taken <= most_bytes(rows, HOLD_BYTES), "{name}: {taken} bytes for {rows}");
            let free = limiter.request("key").cost(0).peek().await.expect("it answers").remaining;
            assert_eq!(free, 1000 - (left as u64 - 1), "{name}");
        }
    }
}

/// T36.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_takes_memory_only_for_rows_that_count() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let limiter = limiter(&store, "log", "50/20ms sliding-log").await;
    let mut most = 0;
    for _ in 0..10_000 {
        let _ = limiter.try_check("key", 1).await.expect("it answers");
        most = most.max(bytes(&server, "tg:{key}:log"));
    }
    assert!(most <= most_bytes(50, LOG_BYTES), "{most} bytes for fifty");
}

/// Returns how often each command was called, also by scripts, without those of this function.
fn calls(server: &RedisServer) -> BTreeMap<String, u64> {
    let info = server.command(&["INFO", "commandstats"]).text();
    let call = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let number = rest.split(',').next()?.parse().ok()?;
        Some((name.to_owned(), number))
    };
    let known = info.lines().filter_map(call);
    // Each connection is checked by a PING a second.
    known.filter(|(name, _)| !matches!(&**name, "info" | "ping")).collect()
}

/// Returns the commands that were called since.
fn since(server: &RedisServer, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let now = calls(server).into_iter();
    let more = now.map(|(name, number)| {
        let more = number - before.get(&name).copied().unwrap_or_default();
        (name, more)
    });
    more.filter(|(_, more)| *more > 0).collect()
}

/// Returns the commands of one decision, besides the script itself, as an average.
async fn commands_each(server: &RedisServer, limiter: &RedisLimiter, decisions: u32) -> f64 {
    let before = calls(server);
    for _ in 0..decisions {
        let decision = limiter.try_check("key", 1).await.expect("it answers");
        assert!(!decision.is_deny(), "`{}` has room for all", limiter.rule());
    }
    let mut called = since(server, &before);
    let scripts = called.remove("evalsha").unwrap_or_default();
    // The rule is read by a script too, at intervals, and so a few times on a busy machine.
    let others = scripts.checked_sub(u64::from(decisions));
    let is_one_each = others.is_some_and(|others| others <= RULE_ASKED_MAX);
    assert!(is_one_each, "`{}`: {scripts} scripts for {decisions}", limiter.rule());
    let sorted = called.keys().find(|name| name.starts_with('z'));
    assert_eq!(sorted, None, "`{}`: no sorted set", limiter.rule());
    let all = u32::try_from(called.values().sum::<u64>()).expect("it is small");
    f64::from(all) / f64::from(decisions)
}

/// T36.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_takes_the_same_few_commands_however_much_has_been_counted() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for (number, rule) in RULES.iter().enumerate() {
        let limiter = limiter(&store, &format!("few{number}"), rule).await;
        let _ = limiter.try_check("key", 1).await.expect("it answers");
        let few = commands_each(&server, &limiter, 50).await;
        commands_each(&server, &limiter, 2_000).await;
        let many = commands_each(&server, &limiter, 50).await;
        assert!(few <= COMMANDS_MAX, "`{rule}`: {few} commands");
        // Renewing the time to live takes two commands, but not with every decision.
        assert!(many <= few + 1.0, "`{rule}`: {few} commands, and {many} after two thousand");
    }
}

/// T36. The retry time of a denial is searched among the held permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_takes_few_commands_after_any_number_of_releases() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let limiter = limiter(&store, "full", "concurrency 3 lease 1h").await;
    let _stays = limiter.try_acquire("key").await.expect("there is room");
    let mut before = limiter.try_acquire("key").await.expect("there is room");
    for _ in 0..1_000 {
        let next = limiter.try_acquire("key").await.expect("there is room");
        let released = std::mem::replace(&mut before, next).release().await;
        assert!(released.expect("it answers"));
    }
    let started = calls(&server);
    let decision = limiter.request("key").cost(3).peek().await.expect("it answers");
    assert!(decision.is_deny());
    let mut called = since(&server, &started);
    called.remove("evalsha").expect("a script has run");
    let all: u64 = called.values().sum();
    assert!(all <= 32 + 4, "{called:?}");
}

/// Returns the commands of a peek, besides the script itself: the minimum of a few runs, since the rule may be read meanwhile.
async fn commands_of_a_look(server: &RedisServer, limiter: &RedisLimiter, cost: u64) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..5 {
        let before = calls(server);
        assert!(limiter.request("key").cost(cost).peek().await.expect("it answers").is_deny());
        let mut called = since(server, &before);
        called.remove("evalsha").expect("a script has run");
        least = least.min(called.values().sum());
    }
    least
}

/// T36. The client chooses the cost, and with it how many permits would have to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_takes_few_commands_for_any_cost() {
    const ALL: u64 = 2_000;
    /// A binary search halves all entries eleven times; each step reads a few sums.
    const COMMANDS: u64 = 4 * 11 + 8;
    let server = RedisServer::start();
    let address = server.url().parse().expect("a server has an address");
    let settings = Settings::default().deadline(Duration::from_secs(30)).connections(1);
    let clock = ManualClock::new();
    let store = RedisStore::connect_with_clock(&address, settings, clock.clone()).await;
    let limiter = limiter(&store, "costly", &format!("concurrency {ALL} lease 1h")).await;
    let mut held = Vec::new();
    for number in 0..ALL {
        if number == ALL / 2 {
            clock.advance(Duration::from_secs(1_800));
        }
        held.push(limiter.try_acquire("key").await.expect("there is room"));
    }
    for cost in [1, ALL / 2, ALL] {
        let commands = commands_of_a_look(&server, &limiter, cost).await;
        assert!(commands <= COMMANDS, "{commands} for a cost of {cost}");
    }
    // Some are released in the middle, and the leases of half of them end, which a denial does not store.
    let (gone, _stays): (Vec<_>, Vec<_>) =
        held.into_iter().enumerate().partition(|(number, _)| number % 5 == 3);
    for (number, permit) in gone {
        assert!(permit.release().await.unwrap(), "{number} was held");
    }
    clock.advance(Duration::from_secs(1_900));
    let left = limiter.request("key").cost(0).peek().await.expect("it answers").remaining;
    for cost in [left + 1, ALL] {
        let commands = commands_of_a_look(&server, &limiter, cost).await;
        assert!(commands <= COMMANDS, "{commands} for a cost of {cost}, when half have run out");
    }
    assert_eq!(left, ALL - ALL / 2 * 4 / 5);
}

/// T36.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_joint_decision_about_five_limits_takes_one_script_and_twice_the_commands_of_each() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for rules in RULES.windows(5) {
        server.command(&["FLUSHALL"]);
        let (mut limiters, mut alone) = (Vec::new(), 0.0);
        for (number, rule) in rules.iter().enumerate() {
            let limiter = limiter(&store, &format!("five{number}"), rule).await;
            limiter.reset("key").await.expect("it answers");
            let _ = limiter.try_check("key", 1).await.expect("it answers");
            alone += commands_each(&server, &limiter, 10).await;
            limiters.push(limiter);
        }
        let asks: Vec<_> = limiters.iter().map(|limiter| limiter.request(b"key").cost(1)).collect();
        // The first request sends the script.
        assert!(!try_check_all(asks.iter().copied()).await.expect("it answers").decision.is_deny());
        // The rule may be read meanwhile, by a script as well: then this is repeated.
        let mut called = BTreeMap::new();
        for _ in 0..5 {
            let before = calls(&server);
            assert!(
                !try_check_all(asks.iter().copied()).await.expect("it answers").decision.is_deny()
            );
            called = since(&server, &before);
            if called.get("evalsha") == Some(&1) {
                break;
            }
        }
        assert_eq!(called.remove("evalsha"), Some(1), "{rules:?}");
        let all = u32::try_from(called.values().sum::<u64>()).expect("it is small");
        assert!(f64::from(all) <= 2.0 * alone + 5.0, "{rules:?}: {all}, and {alone} alone");
    }
}

/// T36.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn almost_no_decision_is_in_the_slow_log() {
    let told = std::env::var("TIDEGATE_DECISIONS").ok();
    let decisions: usize = told.as_deref().unwrap_or("20000").parse().expect("it is a number");
    // With `TIDEGATE_DECISIONS` the machine is idle. Beside other tests only gross differences fail.
    let patience = if told.is_some() { 1 } else { 10 };
    let server = RedisServer::builder()
        .option("slowlog-log-slower-than", SLOW_US)
        .option("slowlog-max-len", "100000")
        .start();
    let store = store(&server).await;
    let mut limiters = Vec::new();
    for (number, rule) in RULES.iter().enumerate() {
        let limiter = limiter(&store, &format!("slow{number}"), rule).await;
        // Compiling the script does not count.
        let _ = limiter.try_check("key", 1).await.expect("it answers");
        limiters.push(limiter);
    }
    server.command(&["SLOWLOG", "RESET"]);
    server.command(&["CONFIG", "RESETSTAT"]);
    for number in 0..decisions {
        let key = (number / RULES.len() % 50).to_string();
        let _ = limiters[number % RULES.len()].try_check(&key, 1).await.expect("it answers");
    }
    // On a busy machine one decision in a thousand may be slow, and the mean is not meaningful.
    let slow = server.command(&["SLOWLOG", "LEN"]).text();
    let slow: usize = slow.parse().expect("it is a number");
    assert!(slow * 1_000 <= decisions * patience, "{slow} of {decisions} took a millisecond");
    let stats = server.command(&["INFO", "latencystats"]).text();
    let half = stats.lines().find_map(|line| {
        let line = line.strip_prefix("latency_percentiles_usec_evalsha:p50=")?;
        line.split(',').next()?.parse::<f64>().ok()
    });
    let half = half.expect("Redis 7 tells how long half of them take");
    let most = USUAL_US * if told.is_some() { 1.0 } else { 5.0 };
    assert!(half <= most, "half of them take {half} us or more");
}
