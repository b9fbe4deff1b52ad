//! The server beside its peers: requests per second, CPU time, latency at half of the maximum rate, memory.
//!
//! ```text
//! server     a process on core 0, which ends when it is dropped
//! peers      installs and starts the other servers
//! resp       CL.THROTTLE beside Redis, redis-cell and throttlecrab, by redis-benchmark
//! http       HTTP, by wrk
//! grpc       gRPC, by h2load
//! calls      runs `tidegate bench`
//! latency    at half of the maximum rate, open loop
//! memory     resident memory at a number of keys
//! verdict    medians, ratios and targets
//! ```
//!
//! Always   The server runs on one core and the load on the other. Servers take turns, and a target applies to the median
//!          of the ratios within a round.
//! Always   Every load has a time limit, and every process ends with the run, also if it fails.

mod calls;
mod grpc;
mod http;
mod latency;
mod memory;
mod peers;
mod resp;
mod server;
mod verdict;

use anyhow::{Context as _, bail, ensure};

use crate::command::Invocation;
use crate::debian::{self, Program};
use crate::workspace::Workspace;
use peers::Peers;

pub(crate) const ARGUMENTS: &str = "[--only resp|http|grpc|latency|memory] [--pipeline 1|16|64] [--keys 1|1M|10M] [--connections N] [--rounds N] [--quick]";

const PROGRAMS: &[Program] = &[
    Program { name: "redis-server", package: "redis-server" },
    Program { name: "redis-benchmark", package: "redis-tools" },
    Program { name: "wrk", package: "wrk" },
    Program { name: "h2load", package: "nghttp2-client" },
    Program { name: "taskset", package: "util-linux" },
    Program { name: "setpriv", package: "util-linux" },
    Program { name: "timeout", package: "coreutils" },
];
/// Rounds that count; one more comes first.
const ROUNDS: usize = 5;
const ROUNDS_QUICK: usize = 3;
/// The default of redis-benchmark.
const CONNECTIONS: u32 = 50;

/// Maximum number of connections; with more, the load generator may run out of descriptors.
const CONNECTIONS_MAX: u32 = 1_000;

/// The parts to measure, and how long.
struct Scope {
    only: Option<String>,
    pipeline: Option<u32>,
    keys: Option<u32>,
    /// The connections of `redis-benchmark`.
    connections: u32,
    rounds: usize,
    is_quick: bool,
}

impl Scope {
    fn read(arguments: &[String]) -> anyhow::Result<Self> {
        let mut scope = Self {
            only: None,
            pipeline: None,
            keys: None,
            connections: CONNECTIONS,
            rounds: ROUNDS,
            is_quick: false,
        };
        let (mut words, mut rounds) = (arguments.iter(), None);
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--quick" => scope.is_quick = true,
                "--only" => scope.only = Some(value()?.clone()),
                "--pipeline" => scope.pipeline = Some(value()?.parse()?),
                "--connections" => scope.connections = value()?.parse()?,
                "--rounds" => rounds = Some(value()?.parse()?),
                "--keys" => {
                    scope.keys = Some(match value()?.as_str() {
                        "1" => 1,
                        "1M" => 1_000_000,
                        "10M" => 10_000_000,
                        other => bail!("--keys is 1, 1M or 10M, not `{other}`"),
                    });
                }
                _ => bail!("unknown argument `{word}`; use {ARGUMENTS}"),
            }
        }
        let parts = ["resp", "http", "grpc", "latency", "memory"];
        if let Some(only) = &scope.only {
            ensure!(parts.contains(&only.as_str()), "--only is one of {}", parts.join(", "));
        }
        if let Some(depth) = scope.pipeline {
            ensure!(resp::DEPTHS.contains(&depth), "--pipeline is one of {:?}", resp::DEPTHS);
        }
        ensure!(
            (1..=CONNECTIONS_MAX).contains(&scope.connections),
            "--connections is 1 to {CONNECTIONS_MAX}"
        );
        let is_resp = scope.only.as_deref() == Some("resp");
        ensure!(is_resp || scope.connections == CONNECTIONS, "--connections goes with --only resp");
        let usual = if scope.is_quick { ROUNDS_QUICK } else { ROUNDS };
        scope.rounds = rounds.unwrap_or(usual);
        ensure!(scope.rounds > 0, "--rounds is at least 1");
        Ok(scope)
    }

    /// Returns the numbers of keys to measure.
    fn keys<'a>(&self, all: &'a [u32]) -> impl Iterator<Item = u32> + use<'a> {
        let only = self.keys;
        all.iter().copied().filter(move |keys| only.is_none_or(|only| only == *keys))
    }

    fn has(&self, part: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == part)
    }
}

pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<()> {
    let scope = Scope::read(arguments)?;
    debian::ensure_all(workspace, PROGRAMS)?;
    Invocation::cargo(workspace, "build --release --locked --bin tidegate").run()?;
    let peers = Peers::find(workspace)?;
    println!(
        "server on core 0, load on core 1, {} connections; medians of {} rounds, after one that does \
         not count; in brackets the CPU time of the server per request in µs",
        scope.connections, scope.rounds
    );
    if scope.has("resp") {
        resp::run(&peers, &scope)?;
    }
    if scope.has("http") {
        http::run(&peers, &scope)?;
    }
    if scope.has("grpc") {
        grpc::run(&peers, &scope)?;
    }
    if scope.has("latency") {
        latency::run(&peers, &scope)?;
    }
    if scope.has("memory") {
        memory::run(&peers, &scope)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> anyhow::Result<Scope> {
        Scope::read(&line.split_whitespace().map(str::to_owned).collect::<Vec<String>>())
    }

    #[test]
    fn without_arguments_everything_is_measured() {
        let scope = read("").unwrap();
        assert!(["resp", "http", "grpc", "latency", "memory"].iter().all(|part| scope.has(part)));
        assert_eq!(scope.rounds, ROUNDS);
    }

    #[test]
    fn a_part_is_chosen_by_its_name() {
        let scope = read("--only resp --pipeline 16 --quick --keys 1M").unwrap();
        assert!(scope.has("resp") && !scope.has("http"));
        assert_eq!((scope.pipeline, scope.keys), (Some(16), Some(1_000_000)));
        assert_eq!(scope.rounds, ROUNDS_QUICK);
        assert_eq!(read("--rounds 5 --quick").unwrap().rounds, 5);
        assert_eq!(read("--connections 2 --only resp").unwrap().connections, 2);
    }

    #[test]
    fn unknown_arguments_are_errors() {
        for line in ["--only tls", "--only", "--pipeline 2", "--rounds 0", "--fast", "--keys 5"] {
            assert!(read(line).is_err(), "{line}");
        }
        assert!(read("--only resp --connections 1000").is_ok());
        for connections in ["0", "1001", "two"] {
            let line = format!("--only resp --connections {connections}");
            assert!(read(&line).is_err(), "{line}");
        }
        assert!(
            read("--only http --connections 2").is_err(),
            "only redis-benchmark has this option"
        );
    }
}
