//! `CL.THROTTLE` over RESP beside what Redis does with `GET` and `SET`, which is the floor that a user knows.
//!
//! Server on one core, `redis-benchmark` on the other; ours and theirs take turns, and what is reported is the
//! median of the ratios. Both servers are started here, on free ports of loopback, and ended here.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::command::Invocation;
use crate::debian::{self, Program};
use crate::workspace::Workspace;

const PROGRAMS: &[Program] = &[
    Program { name: "redis-server", package: "redis-server" },
    Program { name: "redis-benchmark", package: "redis-tools" },
    Program { name: "taskset", package: "util-linux" },
];
/// The first one does not count.
const ROUNDS: usize = 4;
const CONNECTIONS: &str = "50";
/// Seconds after which a load is given up.
const PATIENCE: &str = "120";
/// `/proc` counts processor time in hundredths of a second.
const US_PER_TICK: f64 = 10_000.0;

/// How deep the pipeline is, and how many requests are sent through it.
const DEPTHS: &[(u32, u32)] = &[(1, 100_000), (16, 1_000_000), (64, 2_000_000)];
const KEYS: &[u32] = &[1, 1_000_000];

/// What a server is asked, and which one.
const LOADS: &[(&str, &[&str])] = &[
    ("GET", &["GET", "key:__rand_int__"]),
    ("SET", &["SET", "key:__rand_int__", "x"]),
    ("CL.THROTTLE", &["CL.THROTTLE", "key:__rand_int__", "15", "30", "60"]),
];

pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    debian::ensure_all(workspace, PROGRAMS)?;
    Invocation::cargo(workspace, "build --release --locked --bin tidegate").run()?;
    let tidegate = workspace.target().join("release/tidegate");
    println!(
        "requests a second (processor µs of the server for one); ratios are medians of {} rounds",
        ROUNDS - 1
    );
    for (depth, requests) in DEPTHS {
        for keys in KEYS {
            compare(&tidegate, *depth, *requests, *keys)?;
        }
    }
    Ok(())
}

/// A server that is ended when it is dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(program: &Path, arguments: impl Fn(u16) -> Vec<String>) -> anyhow::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new("taskset")
            .args(["-c", "0"])
            .arg(program)
            .args(arguments(port))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let server = Self { child, port };
        for _ in 0..100 {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(server);
            }
            thread::park_timeout(Duration::from_millis(50));
        }
        anyhow::bail!("{} does not listen", program.display())
    }

    /// Processor time so far, in hundredths of a second.
    fn ticks(&self) -> anyhow::Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let tick = |place: usize| fields.get(place).and_then(|text| text.parse::<f64>().ok());
        Ok(tick(11).unwrap_or(0.0) + tick(12).unwrap_or(0.0))
    }

    fn resident_mib(&self) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.unwrap_or(0.0) / 1024.0)
    }
}

#[derive(Clone, Copy)]
struct Measured {
    per_second: f64,
    cpu_us: f64,
}

fn compare(tidegate: &Path, depth: u32, requests: u32, keys: u32) -> anyhow::Result<()> {
    let redis = Server::start(Path::new("redis-server"), |port| {
        ["--port", &port.to_string(), "--save", "", "--appendonly", "no"]
            .map(str::to_owned)
            .to_vec()
    })?;
    let ours = Server::start(tidegate, |port| {
        let resp = format!("127.0.0.1:{port}");
        let off = ["--http", "off", "--grpc", "off", "--admin", "off"];
        let words = ["serve", "--resp", &resp].into_iter().chain(off);
        words.map(str::to_owned).collect()
    })?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let mut round = Vec::new();
        for (name, words) in LOADS {
            let server = if *name == "CL.THROTTLE" { &ours } else { &redis };
            round.push(load(server, depth, requests, keys, words)?);
        }
        rounds.push(round);
    }
    rounds.remove(0);
    println!(
        "\npipeline {depth}, {keys} keys; resident: Redis {:.0} MiB, ours {:.0} MiB",
        redis.resident_mib()?,
        ours.resident_mib()?
    );
    for (place, (name, _)) in LOADS.iter().enumerate() {
        let of = |measure: fn(&Measured) -> f64| {
            median(rounds.iter().map(|round| measure(&round[place])))
        };
        let ratio = |measure: fn(&Measured) -> f64| {
            median(rounds.iter().map(|round| measure(&round[2]) / measure(&round[place])))
        };
        println!(
            "  {name:<12} {:>9.0} ({:.2})   ours / {name}: {:.2} requests, {:.2} processor",
            of(|it| it.per_second),
            of(|it| it.cpu_us),
            ratio(|it| it.per_second),
            ratio(|it| it.cpu_us),
        );
    }
    Ok(())
}

fn load(
    server: &Server,
    depth: u32,
    requests: u32,
    keys: u32,
    words: &[&str],
) -> anyhow::Result<Measured> {
    let before = server.ticks()?;
    let output = Command::new("timeout")
        .args([PATIENCE, "taskset", "-c", "1", "redis-benchmark", "--csv", "-c", CONNECTIONS])
        .args(["-p", &server.port.to_string(), "-n", &requests.to_string()])
        .args(["-P", &depth.to_string(), "-r", &keys.to_string()])
        .args(words)
        .output()
        .context("cannot start redis-benchmark")?;
    ensure!(output.status.success(), "redis-benchmark failed: {:?}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let number = last.rsplit("\",\"").nth(6).and_then(|text| text.trim_matches('"').parse().ok());
    let per_second = number.with_context(|| format!("redis-benchmark said `{last}`"))?;
    let ticks = server.ticks()? - before;
    Ok(Measured { per_second, cpu_us: ticks * US_PER_TICK / f64::from(requests) })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
