//! `CL.THROTTLE` over RESP beside what Redis does with `GET` and `SET`, which is the floor that a user knows, and
//! beside redis-cell and throttlecrab.
//!
//! Always   Beside them stands a server that decides nothing and gives the same answers. It is about what the load can do: a
//!          target well above it says something about the load, and little about servers.
//! Always   The `GET` to be measured against is one of keys that are not there: the least that Redis can do. One
//!          that finds its key has more to fetch from memory, and is shown beside it.

use std::path::Path;

use anyhow::Context as _;

use super::peers::{Peers, Wire};
use super::server::{Measured, Server, load, words};
use super::verdict::{Target, estimate, print, turns};
use super::{CONNECTIONS, Scope};

/// How deep the pipeline is.
pub(super) const DEPTHS: &[u32] = &[1, 16, 64];
const KEYS: &[u32] = &[1, 1_000_000];

const OURS: &str = "CL.THROTTLE";
const ABSENT: &str = "GET, absent keys";
const CELL: &str = "redis-cell";
const NEWER_CELL: &str = "redis-cell 0.5";
const CRAB: &str = "throttlecrab";
const FLOOR: &str = "no decision";

/// Something to ask one of the servers.
struct Load<'a> {
    name: &'static str,
    server: &'a Server,
    words: &'static str,
    /// So many times fewer requests, for who would take a minute.
    slower: u32,
}

pub(super) fn run(peers: &Peers, scope: &Scope) -> anyhow::Result<()> {
    for depth in DEPTHS.iter().filter(|depth| scope.pipeline.is_none_or(|only| only == **depth)) {
        for keys in scope.keys(KEYS) {
            compare(peers, scope, *depth, keys)?;
        }
    }
    Ok(())
}

fn compare(peers: &Peers, scope: &Scope, depth: u32, keys: u32) -> anyhow::Result<()> {
    let (ours, redis) = (peers.ours(Wire::Resp)?, Peers::redis()?);
    let floor = peers.no_decision()?;
    let (crab, cell) = (peers.throttlecrab(Wire::Resp, keys)?, peers.redis_cell()?);
    let load = |name, server, words| Load { name, server, words, slower: 1 };
    let mut loads = vec![
        load(OURS, &ours, "CL.THROTTLE key:__rand_int__ 15 30 60"),
        load(ABSENT, &redis, "GET none:__rand_int__"),
        load("SET", &redis, "SET key:__rand_int__ x"),
        load("GET, present keys", &redis, "GET key:__rand_int__"),
        load(FLOOR, &floor, "CL.THROTTLE key:__rand_int__ 15 30 60"),
    ];
    if let Some(cell) = &cell {
        let slower = if depth == 1 { 1 } else { 4 };
        let words = "CL.THROTTLE key:__rand_int__ 15 30 60";
        loads.push(Load { name: CELL, server: cell, words, slower });
    }
    // It answers each request of a pipeline with a packet of its own, and waits for the other side in between.
    let slower = if depth == 1 { 1 } else { 32 * CONNECTIONS.div_ceil(scope.connections) };
    let words = "THROTTLE key:__rand_int__ 15 30 60";
    loads.push(Load { name: CRAB, server: &crab, words, slower });
    let requests = requests(scope, depth);
    let rows = turns(loads.iter().map(|load| load.name), scope.rounds, |place| {
        let requests = requests / loads[place].slower;
        let shape = format!("-c {} -P {depth} -r {keys}", scope.connections);
        measure(&loads[place], requests, &shape)
    })?;
    println!(
        "\nRESP, pipeline {depth}, {keys} keys; resident: ours {:.0} MiB, Redis {:.0} MiB, throttlecrab {:.0} MiB",
        ours.resident_mib()?,
        redis.resident_mib()?,
        crab.resident_mib()?
    );
    print(&rows, &targets(depth, keys));
    // What it had elsewhere, it had with this many.
    if scope.connections == CONNECTIONS {
        let newer = Target { against: NEWER_CELL, at_least: of_cell(depth, keys) };
        estimate(&rows, ABSENT, newer_cell(depth, keys), &newer);
    }
    Ok(())
}

fn targets(depth: u32, keys: u32) -> [Target; 2] {
    let (against, at_least) = if depth == 1 { (CRAB, 1.2) } else { (ABSENT, 1.0) };
    let cell = Target { against: CELL, at_least: of_cell(depth, keys) };
    [Target { against, at_least }, cell]
}

/// What must be of redis-cell's requests.
fn of_cell(depth: u32, keys: u32) -> f64 {
    match (depth, keys) {
        (1, _) => 1.0,
        (16, 1) => 2.0,
        (16, _) => 4.0,
        (_, 1) => 3.0,
        (..) => 8.0,
    }
}

/// What redis-cell 0.5 had of the requests of `GET` beside it, on a machine where it could be had. It is in no registry, and it
/// is slower than 0.2.2.
fn newer_cell(depth: u32, keys: u32) -> f64 {
    match (depth, keys) {
        (1, 1) => 69.0 / 71.0,
        (1, _) => 68.0 / 74.0,
        (16, 1) => 425.0 / 1_045.0,
        (16, _) => 194.0 / 863.0,
        (_, 1) => 551.0 / 2_261.0,
        (..) => 218.0 / 1_691.0,
    }
}

fn requests(scope: &Scope, depth: u32) -> u32 {
    let requests = match depth {
        1 => 100_000,
        16 => 1_000_000,
        _ => 2_000_000,
    };
    if scope.is_quick { requests / 2 } else { requests }
}

fn measure(asked: &Load<'_>, requests: u32, shape: &str) -> anyhow::Result<Measured> {
    asked.server.measure(|server| {
        let port = server.port;
        let line = format!("--csv -p {port} -n {requests} {shape}");
        let line = [words(&line), words(asked.words)].concat();
        let text = load(Path::new("redis-benchmark"), &line)?;
        let last = text.lines().last().unwrap_or_default();
        let number =
            last.rsplit("\",\"").nth(6).and_then(|text| text.trim_matches('"').parse().ok());
        let per_second = number.with_context(|| format!("redis-benchmark said `{last}`"))?;
        Ok((per_second, f64::from(requests)))
    })
}
