//! Limits shared through Redis: the cost of a decision on the Redis server and on the node that asks it.
//!
//! The candidates take turns on one server, round after round. The result is the ratio within a round. Run it with
//! `cargo xtask bench --bench shared`; `docs/benchmarks.md` has the targets.
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_bench::arguments::{Arguments, Syntax};
use tidegate_bench::clock::now;
use tidegate_bench::ratio::Ratio;
use tidegate_redis::{RedisLimiter, RedisStore, Settings};
use tidegate_testbed::RedisServer;
use tokio::runtime::Runtime;

const ROUNDS: usize = 11;
/// Commands in one turn.
const COMMANDS: usize = WINDOW * 120;
#[expect(clippy::cast_precision_loss, reason = "it is small")]
const COUNTED: f64 = COMMANDS as f64;
const PIPELINE: usize = 16;
const CONNECTIONS: usize = 50;
/// Commands in flight, when throughput is measured.
const WINDOW: usize = 256;

const KNOWN: Syntax =
    Syntax { flags: &[], options: &[], words: &["processor", "throughput", "node"] };

fn main() -> ExitCode {
    Arguments::run(&KNOWN, |arguments| {
        measure(arguments);
        Ok(())
    })
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
            println!(
                "  leased / exact           {times:.0}  >= 100: {}",
                yes_or_no(times >= 100.0)
            );
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

/// A connection that sends commands in pipelines and counts the replies.
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

    /// Sends the commands over many connections, in pipelines of `at_a_time`, as `redis-benchmark` does.
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

    /// Sends the commands with `window` of them in flight all the time.
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

/// Returns the seconds of CPU time that the server has used.
fn used(server: &RedisServer) -> f64 {
    let info = server.command(&["INFO", "cpu"]);
    let seconds = |name: &str| info.field(name).and_then(|text| text.parse::<f64>().ok());
    seconds("used_cpu_user").expect("INFO has it") + seconds("used_cpu_sys").expect("INFO has it")
}

fn load(server: &RedisServer, script: &str) -> Vec<u8> {
    server.command(&["SCRIPT", "LOAD", script]).text().into_bytes()
}

/// Measures the CPU time of one decision in Redis, for our script and for scripts in use today.
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
    // One decision, which loads the script.
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
    let spread = |index: usize| Ratio::spread(&times[index]);
    println!("\nCPU time of Redis, us per decision, pipeline {PIPELINE}, {keys} keys");
    println!("  token bucket, ours    {}", spread(0));
    println!("  GCRA as in use today  {}", spread(1));
    println!("  plain fixed window    {}", spread(2));
    let (gcra, fixed) = (Ratio::of(&times[0], &times[1]), Ratio::of(&times[0], &times[2]));
    println!("  ours / GCRA           {gcra}  {}", gcra.verdict(0.65));
    println!("  ours / fixed window   {fixed}  {}", fixed.verdict(1.5));
}

/// Measures decisions per second in exact mode and in a bare loop of the same command, and returns the former.
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
    println!("\nDecisions per second, one node, {WINDOW} in flight");
    println!("  bare pipelined EVALSHA {:.0}", Ratio::spread(&bare).median);
    println!("  exact mode             {:.0}", Ratio::spread(&exact).median);
    println!("  exact / bare           {ratio}  >= 0.9: {}", yes_or_no(ratio.median >= 0.9));
    let a_second = Ratio::spread(&exact).median;
    println!("  exact, us per decision {:.2}", 1e6 / a_second);
    a_second
}

/// Measures a decision on the node, in nanoseconds: from a lease, from a cached denial, and in memory.
fn on_the_node(runtime: &Runtime, store: &RedisStore) {
    const TURN: u32 = 64;
    const DECISIONS: u32 = 3_000 * TURN;
    let rule = "1000000000/s burst 1000000000";
    let leased = limiter(store, "leased", rule, true);
    let denied = limiter(store, "denied", "1/h burst 1", false);
    let memory = tidegate::Limiter::new(rule.parse().expect("it is a rule"));
    let refusing = tidegate::Limiter::new("1/h burst 1".parse().expect("it is a rule"));
    runtime.block_on(async {
        let _ = leased.check("hot").await;
        let _ = denied.check("hot").await;
        let _ = refusing.check("hot");
        // No lease is taken from a server right after the first connection.
        tokio::time::sleep(Duration::from_millis(1_300)).await;
        for _ in 0..2_000 {
            let _ = leased.check("hot").await;
            tokio::task::yield_now().await;
        }
    });
    let per =
        |start, count: u32| now().duration_since(start).as_secs_f64() * 1e9 / f64::from(count);
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let start = now();
        for _ in 0..DECISIONS {
            let _ = black_box(memory.check("hot"));
        }
        times[0].push(per(start, DECISIONS));
        // A real server yields to other tasks, and leases are refilled meanwhile. That time is not part of a decision, so
        // it is measured without decisions and subtracted.
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
            let _ = black_box(refusing.check("hot"));
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
    println!("\nNanoseconds per decision on the node, one hot key, one thread");
    println!("  in memory, allowed       {}", Ratio::spread(&times[0]));
    println!("  leased, allowed          {}", Ratio::spread(&times[1]));
    println!("  in memory, denied        {}", Ratio::spread(&times[2]));
    println!("  denied, cached           {}", Ratio::spread(&times[3]));
    let ratio = Ratio::of(&times[1], &times[0]);
    println!("  leased / in memory       {ratio}  {}", ratio.verdict(2.0));
    let ratio = Ratio::of(&times[3], &times[2]);
    println!("  cached / in memory       {ratio}");
    let stats = leased.stats();
    println!("  (leased: {} lent, {} decided)", stats.lent, stats.allowed);
}

/// Measures decisions per second from leases, with a hot key on each of two threads: exact mode also uses two cores,
/// one of them for Redis.
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
    // Runs until leases are granted and have grown large.
    runtime.block_on(async {
        let _ = leased.check("one").await;
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
    println!("\nDecisions per second from leases, a hot key on each of two threads");
    println!("  leased                   {:.0}", spread.median);
    spread.median
}

fn yes_or_no(is_met: bool) -> &'static str {
    if is_met { "yes" } else { "NO" }
}
