//! Leases and crashes: four processes share a limit, and never admit one request too many (B2).
//!
//! A process is killed and restarted, and so is Redis. `TIDEGATE_FULL=1` runs it for 60 s instead of 8.
//!
//! Every interval is checked without tolerance. A request counts in an interval if it was sent after its beginning and decided
//! before its end.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;
use tidegate::{Clock, SystemClock};
use tidegate_redis::{DecisionSource, RedisStore, Settings};
use tidegate_testbed::RedisServer;
use tokio::time::Instant;

const RULE: &str = "2000/s burst 400";
const RATE: u64 = 2_000;
const BURST: u64 = 400;
const NODES: usize = 4;
/// The variable for a child process: the address of Redis, the file to write, and the duration.
const ROLE: &str = "TIDEGATE_TEST_NODE";
/// Callers in one process.
const CALLERS: usize = 8;

/// An admission, and the times between which it was made.
#[derive(Clone, Copy)]
struct Admission {
    before_us: u64,
    after_us: u64,
}

/// A node, started by the other tests as a process; by itself it does nothing.
#[tokio::test]
async fn node() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let [url, file, seconds] = role.split(' ').collect::<Vec<_>>()[..] else {
        panic!("`{role}` is no role");
    };
    let ends = Instant::now() + Duration::from_secs(seconds.parse().expect("seconds are a number"));
    let address = url.parse().expect("it is an address");
    // Long, since decisions without Redis are not tested here.
    let settings = Settings::default().deadline(Duration::from_millis(500));
    let store = RedisStore::connect_with(&address, settings).await;
    let builder = store.builder("shared", RULE.parse().expect("it is a rule")).lease(true);
    let limiter =
        builder.on_error(tidegate_redis::OnError::Deny).build().expect("Redis can count it");
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let limiter = limiter.clone();
        let mut file = File::create(format!("{file}.{caller}")).expect("it can be written");
        callers.spawn(async move {
            while Instant::now() < ends {
                let before = now_us();
                let told = limiter.decide(b"shared", 1).await;
                if told.decision.is_allow() {
                    let is_leased = u8::from(told.source == DecisionSource::Lease);
                    // Written at once, since the process may be killed.
                    writeln!(file, "{before} {} {is_leased}", now_us()).expect("it can be written");
                } else {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
        });
    }
    callers.join_all().await;
}

fn now_us() -> u64 {
    // The clock of Redis, which is the same for all processes.
    static CLOCK: LazyLock<SystemClock> = LazyLock::new(SystemClock::new);
    CLOCK.calendar_now().as_micros()
}

struct Fleet {
    directory: PathBuf,
    url: String,
    started: usize,
}

impl Fleet {
    fn new(server: &RedisServer, name: &str) -> Self {
        let name = format!("tidegate-leases-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("there is room");
        Self { directory, url: server.url(), started: 0 }
    }

    fn start(&mut self, seconds: u64) -> Child {
        self.started += 1;
        let file = self.directory.join(format!("node-{}", self.started));
        let role = format!("{} {} {seconds}", self.url, file.display());
        Command::new(std::env::current_exe().expect("this is a program"))
            .args(["--exact", "node", "--nocapture"])
            .env(ROLE, role)
            .stdout(Stdio::null())
            .spawn()
            .expect("it can be started again")
    }

    fn admissions(&self) -> (Vec<Admission>, usize) {
        let files = std::fs::read_dir(&self.directory).expect("it was made");
        let mut admissions = Vec::new();
        let mut leased = 0;
        for file in files {
            let text = std::fs::read_to_string(file.expect("it is there").path()).expect("text");
            for line in text.lines() {
                let numbers: Vec<u64> =
                    line.split(' ').filter_map(|word| word.parse().ok()).collect();
                if let [before_us, after_us, is_leased] = numbers[..] {
                    admissions.push(Admission { before_us, after_us });
                    leased += usize::from(is_leased == 1);
                }
            }
        }
        (admissions, leased)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Microseconds in a second; and so much counts one admission, where a microsecond brings `RATE`.
const ONE: i64 = 1_000_000;

/// Intervals that begin at one moment, by where they end: each at the end of an admission.
#[derive(Clone, Copy)]
struct Ends {
    /// What the intervals that end after these have of them: admissions, less what the rate has brought meanwhile.
    sum: i64,
    /// The most that an interval has that ends with one of these.
    most: i64,
}

impl Ends {
    const NONE: Self = Self { sum: 0, most: i64::MIN / 2 };

    fn then(self, later: Self) -> Self {
        let Self { sum, most } = self;
        Self { sum: sum + later.sum, most: most.max(sum + later.most) }
    }
}

/// How many more were admitted in any interval than a burst and what the rate brings; below zero is good.
///
/// An interval that holds too many can be made shorter until it begins when one of them was asked for, and ends when one
/// was answered. So intervals begin with each admission in turn, the last first, and those that end with each are kept in a
/// tree: what an admission adds to all that end after it is added in one place.
fn excess(admissions: &[Admission]) -> i64 {
    let mut by_end = admissions.to_vec();
    by_end.sort_unstable_by_key(|admission| admission.after_us);
    let leaves = by_end.len().next_power_of_two();
    let mut tree = vec![Ends::NONE; 2 * leaves];
    let start_us = by_end.first().map_or(0, |first| first.after_us);
    let brought = |until_us: u64| RATE.cast_signed() * (until_us - start_us).cast_signed();
    let mut before = 0;
    for (place, admission) in by_end.iter().enumerate() {
        let until = brought(admission.after_us);
        tree[leaves + place].sum = before - until;
        before = until;
    }
    for place in (1..leaves).rev() {
        tree[place] = tree[2 * place].then(tree[2 * place + 1]);
    }
    let mut places: Vec<usize> = (0..by_end.len()).collect();
    places.sort_unstable_by_key(|place| std::cmp::Reverse(by_end[*place].before_us));
    let mut worst = i64::MIN;
    for begins in places.chunk_by(|a, b| by_end[*a].before_us == by_end[*b].before_us) {
        for place in begins {
            let mut place = leaves + place;
            let sum = tree[place].sum + ONE;
            tree[place] = Ends { sum, most: sum };
            while place > 1 {
                place /= 2;
                tree[place] = tree[2 * place].then(tree[2 * place + 1]);
            }
        }
        let begins_us = by_end[begins[0]].before_us.cast_signed();
        let since_us = begins_us - start_us.cast_signed();
        worst = worst.max(tree[1].most + RATE.cast_signed() * since_us);
    }
    // Whole admissions: a fraction of one admits no request.
    (worst - BURST.cast_signed() * ONE + ONE - 1).div_euclid(ONE)
}

/// Computes the same by counting the admissions of every interval.
fn excess_by_counting(admissions: &[Admission]) -> i64 {
    let mut worst = i64::MIN;
    for first in admissions {
        for last in admissions.iter().filter(|last| last.after_us >= first.before_us) {
            let (begins_us, ends_us) = (first.before_us, last.after_us);
            let is_within =
                |one: &&Admission| one.before_us >= begins_us && one.after_us <= ends_us;
            let within = admissions.iter().filter(is_within).count() as u64;
            let bound = BURST + RATE * (ends_us - begins_us) / 1_000_000;
            if within > 0 {
                worst = worst.max(within.cast_signed() - bound.cast_signed());
            }
        }
    }
    worst
}

/// B2.
#[test]
fn one_too_many_is_found_wherever_it_is() {
    // A burst within a microsecond, and then one at each refill: exactly the bound.
    let mut admissions = vec![Admission { before_us: 1_000, after_us: 1_001 }; 400];
    admissions.extend((1..=50).map(|n| {
        let at_us = 1_000 + 500 * n;
        Admission { before_us: at_us, after_us: at_us }
    }));
    assert_eq!(excess(&admissions), 0);
    for place in [0, 400, 449] {
        let mut more = admissions.clone();
        more.push(more[place]);
        assert_eq!(excess(&more), 1, "one more like number {place}");
    }
    let mut early = admissions.clone();
    early[449].after_us -= 1;
    early[449].before_us -= 1;
    assert_eq!(excess(&early), 1, "one that came a microsecond too soon");
    early[449].after_us += 1;
    assert_eq!(excess(&early), 0, "and may not have");
}

/// B2.
#[test]
fn the_tree_finds_what_counting_finds() {
    let mut random = tidegate_testbed::Random(7);
    for many in [1, 2, 3, 30, 60] {
        for _ in 0..20 {
            let admission = |_| {
                let before_us = 5_000 + random.below(3_000);
                Admission { before_us, after_us: before_us + random.below(400) }
            };
            let admissions: Vec<Admission> = (0..many).map(admission).collect();
            assert_eq!(excess(&admissions), excess_by_counting(&admissions), "{many}");
        }
    }
}

/// B2.
#[tokio::test]
async fn four_processes_never_admit_one_too_many_through_kills_of_a_node_and_of_redis() {
    let seconds = if std::env::var_os("TIDEGATE_FULL").is_some() { 60 } else { 8 };
    let server = RedisServer::builder().append_only().option("appendfsync", "always").start();
    let mut fleet = Fleet::new(&server, "trouble");
    let part = Duration::from_secs(seconds) / 4;
    let mut nodes: Vec<Child> = (0..NODES).map(|_| fleet.start(seconds)).collect();
    tokio::time::sleep(part).await;
    nodes[0].kill().expect("it runs");
    nodes[0].wait().expect("it has ended");
    nodes[0] = fleet.start((seconds * 3) / 4);
    tokio::time::sleep(part).await;
    server.kill();
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.restart();
    for mut node in nodes {
        node.wait().expect("it ends by itself");
    }
    let (admissions, leased) = fleet.admissions();
    // Redis replies after it has written, so all leases exist again after the restart. A reply that was lost then only wastes
    // its lease.
    let worst = excess(&admissions);
    let total = admissions.len() as u64;
    let whole = RATE * seconds + BURST;
    println!(
        "{total} of {whole} admitted in {seconds} s, {leased} of them by leases; {worst} over the bound; \
         {} in a thousand not used",
        (whole.saturating_sub(total)) * 1_000 / whole
    );
    assert!(worst <= 0, "{worst} over the bound");
    assert!(leased * 2 > admissions.len(), "{leased} of {total} by leases");
    assert!(total * 2 > RATE * seconds, "only {total} were admitted");
}

/// B2.
#[tokio::test]
async fn four_processes_without_faults_stay_within_one_burst() {
    let server = RedisServer::start();
    let mut fleet = Fleet::new(&server, "calm");
    let mut nodes: Vec<Child> = (0..NODES).map(|_| fleet.start(5)).collect();
    for node in &mut nodes {
        node.wait().expect("it ends by itself");
    }
    let (admissions, leased) = fleet.admissions();
    let worst = excess(&admissions);
    println!(
        "{} admitted in 5 s, {leased} of them by leases; {worst} over the bound",
        admissions.len()
    );
    assert!(worst <= 0, "{worst} over the bound");
    assert!(leased * 2 > admissions.len(), "{leased} by leases");
}
