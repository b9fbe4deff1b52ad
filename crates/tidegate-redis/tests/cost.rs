//! T36: what a decision costs Redis. Commands and bytes are counted: a busy machine cannot change them.
//!
//! `TIDEGATE_DECISIONS` says how many are timed by Redis itself: 20 000 in the test command, 10 000 000 is what is demanded.

use std::collections::BTreeMap;
use std::time::Duration;
use tidegate::ManualClock;
use tidegate_redis::{JointAsk, RedisLimiter, RedisStore, Settings, check_all};
use tidegate_testbed::{RedisServer, Reply};

/// Rows that a key may have room for, whoever holds it: so few are not worth a copy.
const SPARE_ROWS: i64 = 33;
const HEADER_BYTES: i64 = 72;
const HOLD_BYTES: i64 = 40;
const LOG_BYTES: i64 = 16;

/// One of each algorithm, with room for all that is asked here.
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
/// What a decision may take on the server, and what it must not take.
const USUAL_US: f64 = 20.0;
/// How often a rule is asked for, at the most, while a test runs.
const RULE_ASKED_MAX: u64 = 30;
const SLOW_US: &str = "1000";

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
            let released = std::mem::replace(&mut before, next).release().await;
            assert!(released.expect("it answers"), "{number} was held");
        }
        assert!(most <= most_bytes(3, HOLD_BYTES), "`{rule}`: {most} bytes for three");
        let left = limiter.peek("key", 0).await.expect("it answers").remaining;
        assert_eq!(left, 1000 - 18, "`{rule}`: two hold nine each");
        for permit in [stays, before] {
            assert!(permit.release().await.expect("it answers"), "`{rule}`: they were held");
        }
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
            assert!(permit.release().await.expect("it answers"), "{name}: {left} were held");
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
        let _ = limiter.try_check("key", 1).await.expect("it answers");
        most = most.max(bytes(&server, "tg:{key}:log"));
    }
    assert!(most <= most_bytes(50, LOG_BYTES), "{most} bytes for fifty");
}

/// How often each command was called, by scripts too; but for what this asks itself.
fn calls(server: &RedisServer) -> BTreeMap<String, u64> {
    let info = server.command(&["INFO", "commandstats"]).text();
    let call = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let number = rest.split(',').next()?.parse().ok()?;
        Some((name.to_owned(), number))
    };
    let known = info.lines().filter_map(call);
    // A connection is looked after by a PING a second.
    known.filter(|(name, _)| !matches!(&**name, "info" | "ping")).collect()
}

/// What was called meanwhile, in all and by name.
fn since(server: &RedisServer, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let now = calls(server).into_iter();
    let more = now.map(|(name, number)| {
        let more = number - before.get(&name).copied().unwrap_or_default();
        (name, more)
    });
    more.filter(|(_, more)| *more > 0).collect()
}

/// Commands in one of so many decisions, besides the script itself.
async fn commands_each(server: &RedisServer, limiter: &RedisLimiter, decisions: u32) -> f64 {
    let before = calls(server);
    for _ in 0..decisions {
        let decision = limiter.try_check("key", 1).await.expect("it answers");
        assert!(!decision.is_deny(), "`{}` has room for all", limiter.rule());
    }
    let mut called = since(server, &before);
    let scripts = called.remove("evalsha").unwrap_or_default();
    // The rule is asked for by a script too, now and then: by the clock, and so a few times on a busy machine.
    let others = scripts.checked_sub(u64::from(decisions));
    let is_one_each = others.is_some_and(|others| others <= RULE_ASKED_MAX);
    assert!(is_one_each, "`{}`: {scripts} scripts for {decisions}", limiter.rule());
    let sorted = called.keys().find(|name| name.starts_with('z'));
    assert_eq!(sorted, None, "`{}`: no sorted set", limiter.rule());
    let all = u32::try_from(called.values().sum::<u64>()).expect("it is small");
    f64::from(all) / f64::from(decisions)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t36_a_decision_takes_the_same_few_commands_however_much_has_been_counted() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for (number, rule) in RULES.iter().enumerate() {
        let limiter = limiter(&store, &format!("few{number}"), rule).await;
        let _ = limiter.try_check("key", 1).await.expect("it answers");
        let few = commands_each(&server, &limiter, 50).await;
        commands_each(&server, &limiter, 2_000).await;
        let many = commands_each(&server, &limiter, 50).await;
        assert!(few <= COMMANDS_MAX, "`{rule}`: {few} commands");
        // A key is given more time to live now and then: that is two commands, not with every decision.
        assert!(many <= few + 1.0, "`{rule}`: {few} commands, and {many} after two thousand");
    }
}

/// Who is denied is told when to come back: that is looked for among those who hold a place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t36_a_denial_takes_few_commands_however_many_have_come_and_gone() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let limiter = limiter(&store, "full", "concurrency 3 lease 1h").await;
    let _stays = limiter.try_acquire("key", 1).await.expect("there is room");
    let mut before = limiter.try_acquire("key", 1).await.expect("there is room");
    for _ in 0..1_000 {
        let next = limiter.try_acquire("key", 1).await.expect("there is room");
        let released = std::mem::replace(&mut before, next).release().await;
        assert!(released.expect("it answers"));
    }
    let started = calls(&server);
    let decision = limiter.peek("key", 3).await.expect("it answers");
    assert!(decision.is_deny());
    let mut called = since(&server, &started);
    called.remove("evalsha").expect("a script has run");
    let all: u64 = called.values().sum();
    assert!(all <= 32 + 4, "{called:?}");
}

/// Commands, besides the script itself, that it takes to look at a cost: the least of a few times, for a rule may be asked
/// for meanwhile.
async fn commands_of_a_look(server: &RedisServer, limiter: &RedisLimiter, cost: u64) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..5 {
        let before = calls(server);
        assert!(limiter.peek("key", cost).await.expect("it answers").is_deny());
        let mut called = since(server, &before);
        called.remove("evalsha").expect("a script has run");
        least = least.min(called.values().sum());
    }
    least
}

/// The cost is chosen by who asks, and so is how many of those in flight would have to go for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t36_a_denial_takes_few_commands_however_many_would_have_to_go_for_it() {
    const ALL: u64 = 2_000;
    /// For each of the few sums that are looked up, as often as all can be halved.
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
        held.push(limiter.try_acquire("key", 1).await.expect("there is room"));
    }
    for cost in [1, ALL / 2, ALL] {
        let commands = commands_of_a_look(&server, &limiter, cost).await;
        assert!(commands <= COMMANDS, "{commands} for a cost of {cost}");
    }
    // Some leave in the middle; and the leases of half of them run out, which nobody writes down for a denial.
    let (gone, _stays): (Vec<_>, Vec<_>) =
        held.into_iter().enumerate().partition(|(number, _)| number % 5 == 3);
    for (number, permit) in gone {
        assert!(permit.release().await.unwrap(), "{number} was held");
    }
    clock.advance(Duration::from_secs(1_900));
    let left = limiter.peek("key", 0).await.expect("it answers").remaining;
    for cost in [left + 1, ALL] {
        let commands = commands_of_a_look(&server, &limiter, cost).await;
        assert!(commands <= COMMANDS, "{commands} for a cost of {cost}, when half have run out");
    }
    assert_eq!(left, ALL - ALL / 2 * 4 / 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t36_five_limits_as_one_take_one_script_and_each_twice_what_it_takes_alone() {
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
        let asks: Vec<_> =
            limiters.iter().map(|limiter| JointAsk { limiter, key: b"key", cost: 1 }).collect();
        // The script is known to Redis after the first.
        assert!(!check_all(&asks).await.expect("it answers").decision.is_deny());
        // A rule may be asked for meanwhile, by a script as well: then it is looked at again.
        let mut called = BTreeMap::new();
        for _ in 0..5 {
            let before = calls(&server);
            assert!(!check_all(&asks).await.expect("it answers").decision.is_deny());
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t36_redis_finds_next_to_no_decision_slow() {
    let told = std::env::var("TIDEGATE_DECISIONS").ok();
    let decisions: usize = told.as_deref().unwrap_or("20000").parse().expect("it is a number");
    // Who says how many has a machine for it. Beside other tests a stopwatch measures those, so that only what is out of all
    // proportion is found.
    let patience = if told.is_some() { 1 } else { 10 };
    let server = RedisServer::builder()
        .option("slowlog-log-slower-than", SLOW_US)
        .option("slowlog-max-len", "100000")
        .start();
    let store = store(&server).await;
    let mut limiters = Vec::new();
    for (number, rule) in RULES.iter().enumerate() {
        let limiter = limiter(&store, &format!("slow{number}"), rule).await;
        // To make a script is not to run it.
        let _ = limiter.try_check("key", 1).await.expect("it answers");
        limiters.push(limiter);
    }
    server.command(&["SLOWLOG", "RESET"]);
    server.command(&["CONFIG", "RESETSTAT"]);
    for number in 0..decisions {
        let key = (number / RULES.len() % 50).to_string();
        let _ = limiters[number % RULES.len()].try_check(&key, 1).await.expect("it answers");
    }
    // The machine is busy, and stops Redis where it likes: one in a thousand says nothing about a script, nor does the mean.
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
