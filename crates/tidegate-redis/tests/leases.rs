//! Leased limits through crashes: four processes, one limit, and never one request too many (B2).
//!
//! A process is killed and started again, and so is Redis. `TIDEGATE_FULL=1` runs it for 60 s instead of 8.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;
use tidegate::{Clock, SystemClock};
use tidegate_redis::{RedisStore, Settings, Source};
use tidegate_testbed::RedisServer;
use tokio::time::Instant;

const RULE: &str = "2000/s burst 400";
const RATE: u64 = 2_000;
const BURST: u64 = 400;
const NODES: usize = 4;
/// What a child is told: where Redis is, where to write, and until when.
const ROLE: &str = "TIDEGATE_TEST_NODE";
/// Callers in one process.
const CALLERS: usize = 8;

/// One admission: surely not before, surely not after.
#[derive(Clone, Copy)]
struct Admission {
    before_us: u64,
    after_us: u64,
}

/// Started by the other tests as a process of its own; by itself it does nothing.
#[tokio::test]
async fn node() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let [url, file, seconds] = role.split(' ').collect::<Vec<_>>()[..] else {
        panic!("`{role}` is no role");
    };
    let ends = Instant::now() + Duration::from_secs(seconds.parse().expect("seconds are a number"));
    let address = url.parse().expect("it is an address");
    // Longer than usual: what is decided without Redis is not what is tested here.
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
                let told = limiter.decide(b"everybody", 1).await;
                if told.decision.is_allow() {
                    let is_leased = u8::from(told.source == Source::Leased);
                    // At once: what is not written when the process is killed would be missed.
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
    // The same for all processes: this one follows the system's clock.
    static CLOCK: LazyLock<SystemClock> = LazyLock::new(SystemClock::new);
    CLOCK.now().as_micros()
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

/// The most by which any interval holds more than a burst and the rate; below zero is good. Long intervals are looked at
/// between coarse marks, short ones between fine ones: what surely lies within is counted, so the marks make it milder by
/// what the rate brings in two of them.
fn excess(admissions: &[Admission]) -> i64 {
    let mut admissions = admissions.to_vec();
    admissions.sort_unstable_by_key(|admission| admission.before_us);
    excess_between(&admissions, 50_000, u64::MAX).max(excess_between(&admissions, 1_000, 1_000_000))
}

/// The same for intervals up to so long, between marks that are so far apart.
fn excess_between(admissions: &[Admission], mark_us: u64, longest_us: u64) -> i64 {
    let start = admissions.first().map_or(0, |first| first.before_us) / mark_us;
    let end = admissions.iter().map(|a| a.after_us).max().unwrap_or(0) / mark_us + 1;
    let mut worst = i64::MIN;
    for first in start..end {
        let last = end.min(first.saturating_add(longest_us / mark_us));
        let mut by_mark = vec![0_u64; usize::try_from(last - first + 1).expect("a minute")];
        let from = admissions.partition_point(|a| a.before_us < first * mark_us);
        for admission in admissions[from..].iter().take_while(|a| a.before_us < last * mark_us) {
            let marks = usize::try_from(admission.after_us.div_ceil(mark_us) - first);
            if let Some(count) = by_mark.get_mut(marks.expect("a minute")) {
                *count += 1;
            }
        }
        let mut admitted = 0;
        for (marks, count) in (0_u64..).zip(by_mark) {
            admitted += count;
            let bound = BURST + RATE * marks * mark_us / 1_000_000;
            worst = worst.max(admitted.cast_signed() - bound.cast_signed());
        }
    }
    worst
}

#[tokio::test]
async fn b2_four_processes_never_admit_one_too_many_through_kills_of_a_node_and_of_redis() {
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
    // Redis answers when it has written, so all that was lent is there again after the restart: a reply that was on its way is
    // lost to who asked, and to nobody's good.
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

#[tokio::test]
async fn b2_four_processes_without_any_trouble_stay_within_one_burst() {
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
