//! Limits shared through Redis: what a decision costs Redis, and what it costs the node.
//!
//! Everybody takes turns on one server, round after round; what counts is the ratio within a round. Run it with
//! `cargo xtask bench --bench shared`; what it must show is in `docs/benchmarks.md`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table is the result")]

use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_bench::arguments::{Arguments, Known};
use tidegate_bench::clock::now;
use tidegate_bench::ratio::Ratio;
use tidegate_redis::{RedisLimiter, RedisStore, Settings};
use tidegate_testbed::RedisServer;
use tokio::runtime::Runtime;

const ROUNDS: usize = 11;
/// Commands in one turn at the server.
const COMMANDS: usize = WINDOW * 120;
#[expect(clippy::cast_precision_loss, reason = "it is small")]
const COUNTED: f64 = COMMANDS as f64;
const PIPELINE: usize = 16;
const CONNECTIONS: usize = 50;
/// Commands that are under way at once, for throughput.
const WINDOW: usize = 256;

const KNOWN: Known =
    Known { flags: &[], options: &[], words: &["processor", "throughput", "node"] };

fn main() -> ExitCode {
    let arguments = match Arguments::of_process(&KNOWN) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("error: {message}");
            return ExitCode::from(2);
        }
    };
    if !arguments.is_test() {
        measure(&arguments);
    }
    ExitCode::SUCCESS
}

fn measure(arguments: &Arguments) {
    let server = RedisServer::start();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let store = runtime.block_on(connect(&server));
    if arguments.wants(&["processor"]) {
        for keys in [1, 1_000_000] {
            processor_of_redis(&server, &runtime, &store, keys);
        }
    }
    let exact = arguments.wants(&["throughput"]).then(|| throughput(&server, &runtime, &store));
    if arguments.wants(&["node"]) {
        on_the_node(&runtime, &store);
        let leased = by_all_cores(&runtime, &store);
        if let Some(exact) = exact {
            let times = leased / exact;
            println!("  leased / exact           {times:.0}  >= 100: {}", said(times >= 100.0));
        }
    }
}

async fn connect(server: &RedisServer) -> RedisStore {
    let address = server.url().parse().expect("a server has an address");
    RedisStore::connect_with(&address, Settings::default().deadline(Duration::from_secs(5))).await
}

fn limiter(store: &RedisStore, name: &str, rule: &str, is_lent: bool) -> RedisLimiter {
    let rule = rule.parse().expect("it is a rule");
    store.builder(name, rule).lease(is_lent).build().expect("Redis can count it")
}

/// A connection that sends commands by the dozen and counts the answers.
struct Loop {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
}

impl Loop {
    fn new(server: &RedisServer) -> Self {
        let stream = TcpStream::connect(server.address()).expect("it listens");
        stream.set_nodelay(true).expect("it is TCP");
        let answers = BufReader::with_capacity(1 << 16, stream.try_clone().expect("it is open"));
        Self { stream, answers }
    }

    /// Sends them over many connections, so many at a time on each, as `redis-benchmark` does.
    fn run_all(connections: &mut [Self], commands: &[Vec<u8>], at_a_time: usize) {
        for round in commands.chunks(at_a_time * connections.len()) {
            for (some, connection) in round.chunks(at_a_time).zip(&mut *connections) {
                connection.stream.write_all(&some.concat()).expect("it is open");
            }
            for (some, connection) in round.chunks(at_a_time).zip(&mut *connections) {
                for _ in some {
                    connection.answer();
                }
            }
        }
    }

    /// With so many under way all the time.
    fn flow(&mut self, commands: &[Vec<u8>], window: usize) {
        let batch = window / 2;
        let mut under_way = 0;
        for some in commands.chunks(batch) {
            self.stream.write_all(&some.concat()).expect("it is open");
            under_way += some.len();
            while under_way > batch {
                self.answer();
                under_way -= 1;
            }
        }
        for _ in 0..under_way {
            self.answer();
        }
    }

    fn answer(&mut self) {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        assert!(!line.starts_with('-'), "{line}");
        let number = || line[1..].trim().parse::<usize>().expect("a length");
        match line.as_bytes()[0] {
            b'*' => (0..number()).for_each(|_| self.answer()),
            b'$' => {
                let mut rest = vec![0; number() + 2];
                self.answers.read_exact(&mut rest).expect("it answers");
            }
            _ => {}
        }
    }
}

fn encoded(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Seconds of processor time that the server has used.
fn used(server: &RedisServer) -> f64 {
    let info = server.command(&["INFO", "cpu"]);
    let seconds = |name: &str| info.field(name).and_then(|text| text.parse::<f64>().ok());
    seconds("used_cpu_user").expect("it says so") + seconds("used_cpu_sys").expect("it says so")
}

fn load(server: &RedisServer, script: &str) -> Vec<u8> {
    server.command(&["SCRIPT", "LOAD", script]).text().into_bytes()
}

/// What one decision costs Redis: ours, and scripts that people use today.
fn processor_of_redis(server: &RedisServer, runtime: &Runtime, store: &RedisStore, keys: usize) {
    let gcra = load(server, include_str!("../lua/gcra.lua"));
    let fixed = load(server, include_str!("../lua/fixed_window.lua"));
    let ours = limiter(store, "ours", "1000/s burst 1000000000", false);
    let mut random = 1_u64;
    let mut key = || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        format!("user:{:016}", (random >> 33) as usize % keys)
    };
    let words =
        |parts: &[&[u8]]| encoded(&parts.iter().map(|part| part.to_vec()).collect::<Vec<_>>());
    let mut commands: [Vec<Vec<u8>>; 3] = Default::default();
    for _ in 0..COMMANDS {
        let key = key();
        let sent = runtime.block_on(ours.command(key.as_bytes(), 1)).expect("Redis is there");
        commands[0].push(encoded(&sent));
        let numbers: [&[u8]; 4] = [b"1000000000", b"1000", b"1", b"1"];
        let name = format!("gcra:{key}");
        let evalsha: [&[u8]; 4] = [b"EVALSHA", &gcra, b"1", name.as_bytes()];
        commands[1].push(words(&[&evalsha[..], &numbers[..]].concat()));
        let name = format!("fixed:{key}");
        let window: [&[u8]; 6] = [b"EVALSHA", &fixed, b"1", name.as_bytes(), b"1000000000", b"60"];
        commands[2].push(words(&window));
    }
    // One decision, so that the script is known.
    assert!(runtime.block_on(ours.check("first")).is_allow());
    let mut connections: Vec<Loop> = (0..CONNECTIONS).map(|_| Loop::new(server)).collect();
    let mut times: [Vec<f64>; 3] = Default::default();
    for round in 0..=ROUNDS {
        for (commands, times) in commands.iter().zip(&mut times) {
            let before = used(server);
            Loop::run_all(&mut connections, commands, PIPELINE);
            if round > 0 {
                times.push((used(server) - before) * 1e6 / COUNTED);
            }
        }
    }
    let said = |place: usize| Ratio::spread(&times[place]);
    println!("\nRedis's processor, us a decision, pipeline {PIPELINE}, {keys} keys");
    println!("  token bucket, ours    {}", said(0));
    println!("  GCRA as in use today  {}", said(1));
    println!("  plain fixed window    {}", said(2));
    let (gcra, fixed) = (Ratio::of(&times[0], &times[1]), Ratio::of(&times[0], &times[2]));
    println!("  ours / GCRA           {gcra}  {}", gcra.verdict(0.6));
    println!("  ours / fixed window   {fixed}  {}", fixed.verdict(1.5));
}

/// Decisions a second: exact mode, and a bare loop of the same command. Tells the former.
fn throughput(server: &RedisServer, runtime: &Runtime, store: &RedisStore) -> f64 {
    let ours = limiter(store, "through", "1000/s burst 1000000000", false);
    let sent = runtime.block_on(ours.command(b"hot", 1)).expect("Redis is there");
    let commands = vec![encoded(&sent); COMMANDS];
    assert!(runtime.block_on(ours.check("hot")).is_allow());
    let mut connection = Loop::new(server);
    let (mut bare, mut exact) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let start = now();
        connection.flow(&commands, WINDOW);
        let looped = COUNTED / now().duration_since(start).as_secs_f64();
        let start = now();
        runtime.block_on(async {
            let mut callers = tokio::task::JoinSet::new();
            for _ in 0..WINDOW {
                let ours = ours.clone();
                callers.spawn(async move {
                    for _ in 0..COMMANDS / WINDOW {
                        black_box(ours.decide(b"hot", 1).await);
                    }
                });
            }
            callers.join_all().await;
        });
        let asked = COUNTED / now().duration_since(start).as_secs_f64();
        if round > 0 {
            bare.push(looped);
            exact.push(asked);
        }
    }
    let ratio = Ratio::of(&exact, &bare);
    println!("\nDecisions a second, one node, {WINDOW} under way");
    println!("  bare pipelined EVALSHA {:.0}", Ratio::spread(&bare).median);
    println!("  exact mode             {:.0}", Ratio::spread(&exact).median);
    println!("  exact / bare           {ratio}  >= 0.9: {}", said(ratio.median >= 0.9));
    let a_second = Ratio::spread(&exact).median;
    println!("  exact, us a decision   {:.2}", 1e6 / a_second);
    a_second
}

/// Nanoseconds a decision on the node: by leases, by denials that are remembered, and in memory.
fn on_the_node(runtime: &Runtime, store: &RedisStore) {
    const TURN: u32 = 64;
    const DECISIONS: u32 = 3_000 * TURN;
    let rule = "1000000000/s burst 1000000000";
    let leased = limiter(store, "leased", rule, true);
    let denied = limiter(store, "denied", "1/h burst 1", false);
    let memory = tidegate::Limiter::new(rule.parse().expect("it is a rule"));
    let refusing = tidegate::Limiter::new("1/h burst 1".parse().expect("it is a rule"));
    runtime.block_on(async {
        leased.check("hot").await;
        denied.check("hot").await;
        let _ = refusing.check("hot");
        // Nobody takes leases from a server that was just met.
        tokio::time::sleep(Duration::from_millis(1_300)).await;
        for _ in 0..2_000 {
            leased.check("hot").await;
            tokio::task::yield_now().await;
        }
    });
    let per =
        |start, count: u32| now().duration_since(start).as_secs_f64() * 1e9 / f64::from(count);
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let start = now();
        for _ in 0..DECISIONS {
            black_box(memory.check("hot"));
        }
        times[0].push(per(start, DECISIONS));
        // Whoever serves others has other things to do as well, and leases are fetched meanwhile. That is no part of a decision:
        // what it takes is measured without decisions, and taken off.
        let start = now();
        runtime.block_on(async {
            for _ in 0..DECISIONS / TURN {
                tokio::task::yield_now().await;
            }
        });
        let turns = per(start, DECISIONS);
        let start = now();
        runtime.block_on(async {
            for _ in 0..DECISIONS / TURN {
                for _ in 0..TURN {
                    black_box(leased.decide(b"hot", 1).await);
                }
                tokio::task::yield_now().await;
            }
        });
        times[1].push(per(start, DECISIONS) - turns);
        let start = now();
        for _ in 0..DECISIONS {
            black_box(refusing.check("hot"));
        }
        times[2].push(per(start, DECISIONS));
        let start = now();
        runtime.block_on(async {
            for _ in 0..DECISIONS {
                black_box(denied.decide(b"hot", 1).await);
            }
        });
        times[3].push(per(start, DECISIONS));
    }
    println!("\nNanoseconds a decision on the node, one hot key, one thread");
    println!("  in memory, allowed       {}", Ratio::spread(&times[0]));
    println!("  leased, allowed          {}", Ratio::spread(&times[1]));
    println!("  in memory, denied        {}", Ratio::spread(&times[2]));
    println!("  denied, remembered       {}", Ratio::spread(&times[3]));
    let ratio = Ratio::of(&times[1], &times[0]);
    println!("  leased / in memory       {ratio}  {}", ratio.verdict(2.0));
    let ratio = Ratio::of(&times[3], &times[2]);
    println!("  remembered / in memory   {ratio}");
    let stats = leased.stats();
    println!("  (leased: {} lent, {} decided)", stats.lent, stats.allowed);
}

/// Decisions a second by leases, a hot key on each of two threads: exact mode has two cores as well, one of them Redis's.
fn by_all_cores(runtime: &Runtime, store: &RedisStore) -> f64 {
    const DECISIONS: u32 = 2_000_000;
    let leased = limiter(store, "leased by all", "1000000000/s burst 1000000000", true);
    let decide = async |limiter: RedisLimiter, key: &'static [u8]| {
        for turn in 0..DECISIONS {
            black_box(limiter.decide(key, 1).await);
            if turn % 64 == 0 {
                tokio::task::yield_now().await;
            }
        }
    };
    // Until leases are given, and large.
    runtime.block_on(async {
        leased.check("one").await;
        tokio::time::sleep(Duration::from_millis(1_300)).await;
    });
    let both = || {
        let other = leased.clone();
        let start = now();
        let other = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(decide(other, b"other"));
        });
        runtime.block_on(decide(leased.clone(), b"one"));
        other.join().expect("it does not panic");
        2.0 * f64::from(DECISIONS) / now().duration_since(start).as_secs_f64()
    };
    both();
    let rates: Vec<f64> = (0..5).map(|_| both()).collect();
    let spread = Ratio::spread(&rates);
    println!("\nDecisions a second by leases, a hot key on each of two threads");
    println!("  leased                   {:.0}", spread.median);
    spread.median
}

fn said(is_met: bool) -> &'static str {
    if is_met { "yes" } else { "NO" }
}
