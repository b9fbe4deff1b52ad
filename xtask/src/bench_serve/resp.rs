//! `CL.THROTTLE` over RESP beside `GET` and `SET` of Redis, and beside redis-cell and throttlecrab.
//!
//! Always   Targets are ratios of the server's CPU time, because `redis-benchmark` saturates its own core. A server that
//!          makes no decision shows how many requests the load generator can send.
//! Always   The target is relative to a `GET` of absent keys, the least that Redis can do. A `GET` of present keys has more
//!          to fetch from memory, and is shown beside it.

use std::path::Path;

use anyhow::Context as _;

use super::peers::{Peers, Wire};
use super::server::{Measured, Server, load, words};
use super::verdict::{Target, print, turns};
use super::{CONNECTIONS, Scope};

/// Depths of the pipeline.
pub(super) const DEPTHS: &[u32] = &[1, 16, 64];
const KEYS: &[u32] = &[1, 1_000_000];

const OURS: &str = "CL.THROTTLE";
const ABSENT: &str = "GET, absent keys";
const CELL: &str = "redis-cell";
const CRAB: &str = "throttlecrab";
const FLOOR: &str = "no decision";
const TARGETS: &[Target] =
    &[Target::processor_at_most(ABSENT, 1.1), Target::processor_at_most(CELL, 0.5)];

/// A load for one of the servers.
struct Load<'a> {
    name: &'static str,
    server: &'a Server,
    words: &'static str,
    /// Divides the number of requests, for a server that would take a minute.
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
    // throttlecrab answers each request of a pipeline with a packet of its own, and waits for the client in between.
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
    // Without a pipeline, system calls dominate, and there is no target.
    print(&rows, if depth == 1 { &[] } else { TARGETS });
    Ok(())
}

fn requests(scope: &Scope, depth: u32) -> u32 {
    let requests = match depth {
        1 => 100_000,
        16 => 1_000_000,
        _ => 2_000_000,
    };
    if scope.is_quick { requests / 2 } else { requests }
}

fn measure(target: &Load<'_>, requests: u32, shape: &str) -> anyhow::Result<Measured> {
    target.server.measure(|server| {
        let port = server.port;
        let line = format!("--csv -p {port} -n {requests} {shape}");
        let line = [words(&line), words(target.words)].concat();
        let text = load(Path::new("redis-benchmark"), &line)?;
        let last = text.lines().last().unwrap_or_default();
        let number =
            last.rsplit("\",\"").nth(6).and_then(|text| text.trim_matches('"').parse().ok());
        let per_second = number
            .with_context(|| format!("redis-benchmark printed `{last}`, which has no rate"))?;
        Ok((per_second, f64::from(requests)))
    })
}
