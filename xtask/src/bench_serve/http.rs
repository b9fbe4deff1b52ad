//! HTTP in a closed loop, by `wrk`: the same generator, connections and keys for every server. The generator can send
//! faster than any of them answers.
//!
//! Always   No key reaches its limit, so that all servers do the same work: a denial may cost less or more.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::peers::{Peers, Wire};
use super::server::{Measured, Server, load, words};
use super::verdict::{Row, Target, print, turns};
use super::{CONNECTIONS, Scope};

const KEYS: &[u32] = &[1, 1_000_000];
const CRAB: &str = "throttlecrab";
const LIMITADOR: &str = "limitador";

/// A server, with the path and the body of its requests.
struct Call<'a> {
    name: &'static str,
    server: &'a Server,
    path: &'static str,
    /// The body, in which `KEY` stands for seven digits.
    body: &'static str,
}

fn ours(server: &Server) -> Call<'_> {
    let body = r#"{"limit":"bench","key":"key:KEY"}"#;
    Call { name: "ours", server, path: "/v1/check", body }
}

fn crab(server: &Server) -> Call<'_> {
    let body = r#"{"key":"key:KEY","max_burst":1000000,"count_per_period":1000000,"period":1}"#;
    Call { name: CRAB, server, path: "/throttle", body }
}

fn limitador(server: &Server) -> Call<'_> {
    let body = r#"{"namespace":"bench","values":{"key":"key:KEY"},"delta":1}"#;
    Call { name: LIMITADOR, server, path: "/check_and_report", body }
}

pub(super) fn run(peers: &Peers, scope: &Scope) -> anyhow::Result<()> {
    let targets = [Target::requests_at_least(CRAB, 1.1), Target::requests_at_least(LIMITADOR, 1.4)];
    for keys in scope.keys(KEYS) {
        let servers = (
            peers.ours(Wire::Http)?,
            peers.throttlecrab(Wire::Http, keys)?,
            peers.limitador(Wire::Http)?,
        );
        let mut calls = vec![ours(&servers.0), crab(&servers.1)];
        calls.extend(servers.2.as_ref().map(limitador));
        let rows = compare(peers, scope, &calls, keys)?;
        println!("\nHTTP, any of {keys} keys");
        print(&rows, &targets);
    }
    Ok(())
}

fn compare(
    peers: &Peers,
    scope: &Scope,
    calls: &[Call<'_>],
    keys: u32,
) -> anyhow::Result<Vec<Row>> {
    let seconds = if scope.is_quick { 2 } else { 4 };
    turns(calls.iter().map(|call| call.name), scope.rounds, |place| {
        let script = peers.directory.join("post.lua");
        fs::write(&script, lua(&calls[place], keys))?;
        measure(&calls[place], &script, seconds)
    })
}

/// Returns the script for wrk, which sends random keys, different in each round. The head is constant; only the key
/// changes, and it always has the same length.
fn lua(call: &Call<'_>, keys: u32) -> String {
    let (before, after) = call.body.split_once("KEY").unwrap_or((call.body, ""));
    let length = before.len() + 7 + after.len();
    format!(
        "math.randomseed(os.time())\nlocal before = 'POST {} HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Type: application/json\\r\\n\
         Content-Length: {length}\\r\\n\\r\\n{before}'\n\
         request = function() return before .. string.format('%07d', math.random(0, {})) .. '{after}' end\n",
        call.path,
        keys - 1
    )
}

fn measure(call: &Call<'_>, script: &Path, seconds: u32) -> anyhow::Result<Measured> {
    call.server.measure(|server| {
        let mut line = words(&format!("-t 1 -c {CONNECTIONS} -d {seconds}s -s"));
        line.push(script.display().to_string());
        line.push(format!("http://127.0.0.1:{}", server.port));
        let text = load(Path::new("wrk"), &line)?;
        let is_whole = !text.contains("Non-2xx") && !text.contains("Socket errors");
        ensure!(is_whole, "{}: some requests were not answered: {text}", call.name);
        Ok((number(&text, "Requests/sec:")?, requests(&text)?))
    })
}

fn number(text: &str, name: &str) -> anyhow::Result<f64> {
    let after = text.split(name).nth(1).and_then(|text| text.split_whitespace().next());
    after.and_then(|text| text.parse().ok()).with_context(|| format!("wrk printed `{text}`"))
}

/// `  142468 requests in 2.00s, 30.16MB read`
fn requests(text: &str) -> anyhow::Result<f64> {
    let before = text.split(" requests in ").next().and_then(|text| text.split_whitespace().last());
    before.and_then(|text| text.parse().ok()).with_context(|| format!("wrk printed `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_says_is_read() {
        let text = "  1 threads and 50 connections\n  142468 requests in 2.00s, 30.16MB read\n\
                    Requests/sec:  71234.56\nTransfer/sec:     15.08MB\n";
        assert_eq!(number(text, "Requests/sec:").ok(), Some(71_234.56));
        assert_eq!(requests(text).ok(), Some(142_468.0));
        assert!(requests("nothing").is_err());
    }
}
