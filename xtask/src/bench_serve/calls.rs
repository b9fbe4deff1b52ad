//! HTTP and gRPC, in a closed loop by `tidegate bench`: the same generator, connections and keys for everybody.
//!
//! Always   Every limit is out of reach, so that all do the same work: one that denies may do less of it, or more.

use std::path::Path;

use anyhow::Context as _;

use super::peers::{Peers, Wire};
use super::server::{Measured, Server, load, words};
use super::verdict::{Row, Target, median, print};
use super::{CONNECTIONS, Scope};

const KEYS: &[u32] = &[1, 1_000_000];
const CRAB: &str = "throttlecrab";
const LIMITADOR: &str = "limitador";

/// A server, and what to say to `tidegate bench` about it.
pub(super) struct Call<'a> {
    pub(super) name: &'static str,
    pub(super) server: &'a Server,
    pub(super) target: &'static str,
    pub(super) flags: Vec<String>,
}

impl Call<'_> {
    /// Arguments of `tidegate bench`, but for how much.
    pub(super) fn line(&self, keys: u32) -> Vec<String> {
        let target = self.target.replace("PORT", &self.server.port.to_string());
        let rest = format!("--connections {CONNECTIONS} --keys {keys} --threads 1 --format json");
        [vec!["bench".to_owned(), target], words(&rest), self.flags.clone()].concat()
    }
}

pub(super) fn ours_http(server: &Server) -> Call<'_> {
    let flags = words("--limit bench");
    Call { name: "ours", server, target: "http://127.0.0.1:PORT", flags }
}

pub(super) fn ours_grpc(server: &Server) -> Call<'_> {
    let flags = words("--domain bench --descriptor key={key}");
    Call { name: "ours", server, target: "grpc://127.0.0.1:PORT", flags }
}

pub(super) fn crab_http(server: &Server) -> Call<'_> {
    let body = r#"{"key":"{key}","max_burst":1000000,"count_per_period":1000000,"period":1}"#;
    let flags = vec!["--body".to_owned(), body.to_owned()];
    Call { name: CRAB, server, target: "http://127.0.0.1:PORT/throttle", flags }
}

fn limitador_http(server: &Server) -> Call<'_> {
    let body = r#"{"namespace":"bench","values":{"key":"{key}"},"delta":1}"#;
    let flags = vec!["--body".to_owned(), body.to_owned()];
    Call { name: LIMITADOR, server, target: "http://127.0.0.1:PORT/check_and_report", flags }
}

fn limitador_grpc(server: &Server) -> Call<'_> {
    let flags = words("--domain bench --descriptor key={key}");
    Call { name: LIMITADOR, server, target: "grpc://127.0.0.1:PORT", flags }
}

pub(super) fn http(peers: &Peers, scope: &Scope) -> anyhow::Result<()> {
    let targets =
        [Target { against: CRAB, at_least: 1.2 }, Target { against: LIMITADOR, at_least: 2.0 }];
    for keys in scope.keys(KEYS) {
        let (ours, crab) = (peers.ours(Wire::Http)?, peers.throttlecrab(Wire::Http, keys)?);
        let limitador = peers.limitador(Wire::Http)?;
        let mut calls = vec![ours_http(&ours), crab_http(&crab)];
        calls.extend(limitador.as_ref().map(limitador_http));
        let rows = compare(peers, scope, &calls, keys, 1)?;
        println!("\nHTTP, {keys} keys");
        print(&rows, &targets);
    }
    Ok(())
}

/// What is said of gRPC without limitador beside it: nothing but our own figures, and what was measured elsewhere.
pub(super) fn grpc(peers: &Peers, scope: &Scope) -> anyhow::Result<()> {
    let targets = [Target { against: LIMITADOR, at_least: 1.5 }];
    for streams in [1, 10] {
        for keys in scope.keys(KEYS) {
            let ours = peers.ours(Wire::Grpc)?;
            let limitador = peers.limitador(Wire::Grpc)?;
            let mut calls = vec![ours_grpc(&ours)];
            calls.extend(limitador.as_ref().map(limitador_grpc));
            let rows = compare(peers, scope, &calls, keys, streams)?;
            println!("\ngRPC, {streams} streams a connection, {keys} keys");
            print(&rows, &targets);
        }
    }
    Ok(())
}

fn compare(
    peers: &Peers,
    scope: &Scope,
    calls: &[Call<'_>],
    keys: u32,
    pipeline: u32,
) -> anyhow::Result<Vec<Row>> {
    let seconds = if scope.is_quick { 2 } else { 4 };
    let mut rows: Vec<Row> =
        calls.iter().map(|call| Row { name: call.name, rounds: Vec::new() }).collect();
    for round in 0..=scope.rounds {
        for (call, row) in calls.iter().zip(&mut rows) {
            let measured = measure(&peers.tidegate, call, keys, pipeline, seconds)?;
            if round > 0 {
                row.rounds.push(measured);
            }
        }
    }
    Ok(rows)
}

/// The peak, by one load.
pub(super) fn measure(
    tidegate: &Path,
    call: &Call<'_>,
    keys: u32,
    pipeline: u32,
    seconds: u32,
) -> anyhow::Result<Measured> {
    call.server.measure(|_| {
        let how = words(&format!("--rate max --duration {seconds} --pipeline {pipeline}"));
        let text = load(tidegate, &[call.line(keys), how].concat())?;
        let per_second = number(&text, "achieved_per_second")?;
        all_answered(&text, call.name)?;
        Ok((per_second, number(&text, "answered")?))
    })
}

/// Fails if any request was answered with an error, or not at all: the figures would be of something else.
pub(super) fn all_answered(json: &str, name: &str) -> anyhow::Result<()> {
    for what in ["errors", "lost", "unsent"] {
        anyhow::ensure!(number(json, what)? == 0.0, "{name}: not all were answered: {json}");
    }
    Ok(())
}

/// The first number of this name; names are not repeated where we look.
pub(super) fn number(json: &str, name: &str) -> anyhow::Result<f64> {
    let after = json.split(&format!("\"{name}\": ")).nth(1);
    let text = after.and_then(|text| text.split([',', '\n', '}']).next());
    text.and_then(|text| text.trim().parse().ok())
        .with_context(|| format!("no {name} in what tidegate bench says: {json}"))
}

/// The middle of a few peaks.
pub(super) fn peak(tidegate: &Path, call: &Call<'_>, keys: u32) -> anyhow::Result<f64> {
    let peaks: anyhow::Result<Vec<Measured>> =
        (0..3).map(|_| measure(tidegate, call, keys, 1, 1)).collect();
    Ok(median(peaks?.iter().map(|measured| measured.per_second)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_by_its_name() {
        let json = "{\n  \"answered\": 12,\n  \"latency_us\": {\n    \"p99\": 34\n  }\n}";
        assert_eq!(number(json, "answered").ok(), Some(12.0));
        assert_eq!(number(json, "p99").ok(), Some(34.0));
        assert!(number(json, "p50").is_err());
    }
}
