//! T37: Rust and Lua give the same numbers, on a real server with a clock that the test controls.
//!
//! `TIDEGATE_SEQUENCES` is the number of sequences of operations for each algorithm: 10 000 in the test command, 1 000 000 in
//! `cargo xtask differential`. `TIDEGATE_SEED` runs a single one: the failure message names it.

use std::time::Duration;
use tidegate::{ManualClock, Rule};
use tidegate_core::{Decision, Limit, Span, State, Ticket, Timestamp};
use tidegate_redis::{RedisLimiter, RedisPermit, RedisStore, Settings};
use tidegate_testbed::{Random, RedisServer};

/// Operations in a sequence.
const OPERATIONS: u64 = 8;
/// Operations in a long one: lists of rows have been copied several times by then. There is one for a hundred others.
const OPERATIONS_AT_LENGTH: u64 = 400;
const AT_LENGTH_ONE_IN: u64 = 100;
/// Sequences that run at the same time, in one pipeline.
const TOGETHER: u64 = 100;
/// How often a sequence is repeated before a difference counts.
const ATTEMPTS: u32 = 3;
/// The prefix of an error that is no difference.
const UNANSWERED: &str = "Redis did not answer: ";
const START: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);

/// Returns a number that is mostly small, and sometimes of any size.
fn size(random: &mut Random, max: u64) -> u64 {
    let bits = random.below(u64::from(max.ilog2()) + 1);
    (random.next() >> (63 - bits)).clamp(1, max)
}

fn one_of<'a>(random: &mut Random, words: &[&'a str]) -> &'a str {
    words[usize::try_from(random.below(words.len() as u64)).expect("it is small")]
}
/// Returns a random rule of this algorithm.
fn rule(stem: &str, random: &mut Random) -> String {
    let (length, unit) = (size(random, 999), one_of(random, &["us", "ms", "s", "s", "min", "h"]));
    let period = format!("{length}{unit}");
    let count = size(random, 9_999);
    let room = size(random, 500);
    match stem {
        "token_bucket" => {
            format!("{count}/{period} burst {room}{}", one_of(random, &["", " start empty"]))
        }
        "leaky" => format!("{count}/{period} leaky capacity {room}"),
        "queue" => {
            let wait = size(random, 5_000);
            let wait = if random.below(2) == 0 { String::new() } else { format!(" wait {wait}ms") };
            format!("{count}/{period} queue capacity {room}{wait}")
        }
        "fixed" => {
            let from = one_of(random, &["", " from first", " from 2024-01-01T00:00:00+08:00"]);
            format!("{count}/{period} fixed{from}")
        }
        "calendar" => {
            let unit = one_of(random, &["min", "h", "day", "week", "month", "year"]);
            let zone = one_of(random, &["", " in Asia/Shanghai", " in America/New_York"]);
            format!("{}/{unit} calendar{zone}", size(random, 50))
        }
        "sliding" => {
            // Products of these do not fit into a double.
            let is_long = matches!(unit, "min" | "h");
            let count = if is_long && random.below(2) == 0 { size(random, 1 << 39) } else { count };
            format!("{count}/{period} sliding")
        }
        "sliding_log" => format!("{}/{period} sliding-log", size(random, 200)),
        "smooth" => {
            let burst = if random.below(2) == 0 { String::new() } else { format!(" burst {room}") };
            format!("{count}/{period} smooth{burst}")
        }
        "warmup" => {
            let (warmup, cold) = (size(random, 20_000), size(random, 8) + 1);
            format!("{count}/{period} warmup {warmup}ms cold {cold}")
        }
        "nginx" => {
            let delay = match random.below(3) {
                0 => String::new(),
                1 => " nodelay".to_owned(),
                _ => format!(" delay={}", random.below(room)),
            };
            let burst = if delay.is_empty() { random.below(50) } else { room };
            format!("{}r/{} burst={burst}{delay}", size(random, 2_000), one_of(random, &["s", "m"]))
        }
        "concurrency" => {
            let lease = size(random, 60_000);
            let lease =
                if random.below(3) == 0 { String::new() } else { format!(" lease {lease}ms") };
            // A few, many, and as many as a double can count.
            let max = match random.below(8) {
                0 => 1 << 53,
                1 | 2 => 2_000,
                _ => 20,
            };
            format!("concurrency {}{lease}", size(random, max))
        }
        other => panic!("there is no algorithm called {other}"),
    }
}

/// Both sides of one sequence.
struct Sides {
    limit: Limit,
    state: State,
    limiter: RedisLimiter,
    clock: ManualClock,
    now: Timestamp,
    /// Whether both have stored the same state: only then may the clock go back.
    is_written: bool,
    held: Vec<(Option<Ticket>, RedisPermit)>,
}

impl Sides {
    /// Advances the clock: not at all, a little, or until everything has drained. Sometimes sets it back.
    fn pass(&mut self, random: &mut Random) {
        let usual =
            self.limit.peek(&self.state, self.now, 0).reset_after.as_micros().clamp(1, 1 << 45);
        if self.is_written && random.below(16) == 0 {
            let step =
                if random.below(2) == 0 { random.below(1_001) } else { random.below(usual * 3) };
            self.now = self.now - Span::from_micros(step);
        } else {
            let step = match random.below(8) {
                0 => 0,
                1 => 1,
                2 => usual.saturating_sub(1),
                3 => usual,
                4 => usual * 3,
                _ => random.below(usual),
            };
            self.now = self.now + Span::from_micros(step);
        }
        self.clock.set(self.now);
    }

    fn cost(&self, random: &mut Random) -> u64 {
        let limit = self.limit.peek(&self.state, self.now, 0).limit;
        match random.below(10) {
            0 => 0,
            1 => random.below(limit.saturating_mul(2).max(2)),
            2 => limit,
            3 if random.below(4) == 0 && self.denies_some() => u64::MAX >> random.below(11),
            3 => limit + 1,
            // Small costs, so that many permits are held.
            4..=6 if self.limit.is_concurrency() => 1 + random.below((limit / 64).max(1)),
            _ => 1 + random.below((limit / 4).max(1)),
        }
    }

    /// Returns whether the rule never admits some cost. Otherwise Rust delays a cost that a double cannot hold for ever, and Lua
    /// denies it.
    fn denies_some(&self) -> bool {
        !matches!(self.limit.stem(), "smooth" | "warmup")
    }

    async fn step(&mut self, key: &str, random: &mut Random) -> Result<String, String> {
        self.pass(random);
        let cost = self.cost(random);
        let now = self.now;
        if self.limit.is_concurrency() {
            return self.hold(key, cost, random).await;
        }
        let (said, expected, got) = match random.below(8) {
            0 => {
                let got = self.limiter.request(key).cost(cost).peek().await;
                ("peek", self.limit.peek(&self.state, now, cost), got)
            }
            1 => {
                self.limit.refund(&mut self.state, now, cost);
                self.limiter
                    .refund(key, cost)
                    .await
                    .map_err(|error| format!("{UNANSWERED}{error}"))?;
                let left = self.limit.peek(&self.state, now, 0);
                // A key at rest is deleted, and with it the time of its state.
                self.is_written = !left.reset_after.is_zero();
                ("refund", left, self.limiter.request(key).cost(0).peek().await)
            }
            _ => {
                let expected = self.limit.decide(&mut self.state, now, cost);
                self.is_written = !expected.is_deny() && cost > 0;
                ("take", expected, self.limiter.try_check(key, cost).await)
            }
        };
        compare(
            format!("{said} {cost} at {now:?}"),
            expected,
            got.map_err(|error| format!("{UNANSWERED}{error}"))?,
        )
    }

    async fn hold(&mut self, key: &str, cost: u64, random: &mut Random) -> Result<String, String> {
        let now = self.now;
        if random.below(3) == 0 && !self.held.is_empty() {
            let place = usize::try_from(random.below(self.held.len() as u64)).expect("it is small");
            let (ticket, permit) = self.held.swap_remove(place);
            if let Some(ticket) = ticket {
                self.limit.release(&mut self.state, ticket);
            }
            permit.release().await.expect("Redis answers");
            return Ok(format!("release at {now:?}"));
        }
        let (expected, ticket) = self.limit.enter(&mut self.state, now, cost);
        self.is_written = !expected.is_deny() && cost > 0;
        let got = match self.limiter.request(key).cost(cost).try_acquire().await {
            Ok(permit) => {
                let decision = permit.decision();
                self.held.push((ticket, permit));
                decision
            }
            Err(denied) => denied.decision,
        };
        compare(format!("hold {cost} at {now:?}"), expected, got)
    }
}

fn compare(said: String, expected: Decision, got: Decision) -> Result<String, String> {
    if expected == got {
        return Ok(said);
    }
    Err(format!("{said}\n  Rust says {expected:?}\n  Lua says  {got:?}"))
}

async fn sequence(
    store: &RedisStore,
    clock: &ManualClock,
    (stem, operations): (&str, u64),
    seed: u64,
    attempt: u32,
) -> Result<(), String> {
    let mut random = Random(seed);
    let text = rule(stem, &mut random);
    let rule: Rule = text.parse().unwrap_or_else(|error| panic!("{error}"));
    clock.set(START);
    let name = format!("{stem}-{seed}-{attempt}");
    let limiter =
        store.limiter(&name, rule.clone()).map_err(|error| format!("{UNANSWERED}{error}"))?;
    limiter.ready().await.map_err(|error| format!("{UNANSWERED}{error}"))?;
    let limit = rule.limit().clone();
    let state = limit.fresh(START);
    let held = Vec::new();
    let clock = clock.clone();
    let mut sides = Sides { limit, state, limiter, clock, now: START, is_written: false, held };
    let mut said = Vec::new();
    for _ in 0..operations {
        match sides.step("key", &mut random).await {
            Ok(line) => said.push(line),
            // Then the share of this node grants the permit.
            Err(_) if sides.limiter.stats().failed > 0 => return Err(UNANSWERED.to_owned()),
            Err(unanswered) if unanswered.starts_with(UNANSWERED) => return Err(unanswered),
            Err(difference) => {
                let before = said.join("\n");
                return Err(format!("seed {seed}, `{text}`:\n{before}\n{difference}"));
            }
        }
    }
    for (_, permit) in sides.held {
        permit.release().await.expect("Redis answers");
    }
    Ok(())
}

/// Runs one sequence. Keys expire by Redis's own clock, a second after they have drained, so a machine that stalls that long
/// causes a difference. A difference between Rust and Lua recurs.
async fn compared(
    store: &RedisStore,
    clock: &ManualClock,
    what: (&str, u64),
    seed: u64,
) -> Result<(), String> {
    let mut found = sequence(store, clock, what, seed, 0).await;
    for attempt in 1..ATTEMPTS {
        match &found {
            Err(error) if !error.starts_with(UNANSWERED) => {
                found = sequence(store, clock, what, seed, attempt).await;
            }
            _ => break,
        }
    }
    found
}

async fn connect(server: &RedisServer, clock: &ManualClock) -> RedisStore {
    let address = server.url().parse().expect("a server has an address");
    // Long, since no request may be decided without Redis on a busy machine.
    let settings = Settings::default().deadline(Duration::from_secs(30)).connections(1);
    RedisStore::connect_with_clock(&address, settings, clock.clone()).await
}

fn sequences() -> u64 {
    let text = std::env::var("TIDEGATE_SEQUENCES").unwrap_or_else(|_| "10000".to_owned());
    text.parse().expect("TIDEGATE_SEQUENCES is a number")
}

fn seed() -> Option<u64> {
    let text = std::env::var("TIDEGATE_SEED").ok()?;
    Some(text.parse().expect("TIDEGATE_SEED is a number"))
}

async fn all_sequences(stem: &'static str, operations: u64, sequences: u64) {
    let server = RedisServer::start();
    if let Some(seed) = seed() {
        let clock = ManualClock::at(START);
        let store = connect(&server, &clock).await;
        let found = compared(&store, &clock, (stem, operations), seed).await;
        return found.unwrap_or_else(|difference| panic!("{difference}"));
    }
    let mut tasks = tokio::task::JoinSet::new();
    for first in 0..TOGETHER {
        let clock = ManualClock::at(START);
        let store = connect(&server, &clock).await;
        tasks.spawn(async move {
            let mut lost = 0;
            for seed in (first..sequences).step_by(usize::try_from(TOGETHER).expect("it is small"))
            {
                match compared(&store, &clock, (stem, operations), seed).await {
                    Ok(()) => {}
                    // The machine was too busy to compare, which must be rare.
                    Err(unanswered) if unanswered.starts_with(UNANSWERED) => lost += 1,
                    Err(difference) => panic!("{difference}"),
                }
            }
            lost
        });
    }
    let lost: u64 = tasks.join_all().await.into_iter().sum();
    assert!(lost * 100 <= sequences, "{lost} sequences without an answer");
}

macro_rules! every_algorithm {
    ($($stem:ident),+ $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $stem() {
            all_sequences(stringify!($stem), OPERATIONS, sequences()).await;
        })+
    };
}

every_algorithm!(
    calendar,
    concurrency,
    fixed,
    leaky,
    nginx,
    queue,
    sliding,
    sliding_log,
    smooth,
    token_bucket,
    warmup,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrency_at_length() {
    all_sequences("concurrency", OPERATIONS_AT_LENGTH, sequences() / AT_LENGTH_ONE_IN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sliding_log_at_length() {
    all_sequences("sliding_log", OPERATIONS_AT_LENGTH, sequences() / AT_LENGTH_ONE_IN).await;
}

/// Both sides deny it, and repair the same state after a step of the clock.
#[tokio::test]
async fn a_cost_that_no_double_holds_does_the_same_on_both_sides() {
    let server = RedisServer::start();
    let clock = ManualClock::at(START);
    let store = connect(&server, &clock).await;
    for text in [
        "concurrency 2 lease 10s",
        "2/10s burst 2",
        "2/10s leaky capacity 2",
        "2/10s queue capacity 2",
        "2/10s fixed",
        "2/min calendar",
        "2/10s sliding",
        "2/10s sliding-log",
        "12r/m burst=2 nodelay",
    ] {
        let rule: Rule = text.parse().unwrap();
        let limiter = store.limiter(text, rule.clone()).unwrap();
        let limit = rule.limit();
        let mut state = limit.fresh(START);
        let mut permits = Vec::new();
        for (seconds, cost) in [(600, 2), (300, u64::MAX), (304, 1), (309, 1), (310, 1)] {
            let now = START + Span::from_secs(seconds);
            clock.set(now);
            let expected = limit.decide(&mut state, now, cost);
            let got = if limit.is_concurrency() {
                let permit = limiter.request("key").cost(cost).try_acquire().await;
                let got =
                    permit.as_ref().map_or_else(|denied| denied.decision, RedisPermit::decision);
                permits.extend(permit);
                got
            } else {
                limiter.try_check("key", cost).await.unwrap()
            };
            assert_eq!(got, expected, "`{text}`: {cost} at {seconds} s");
        }
    }
}
