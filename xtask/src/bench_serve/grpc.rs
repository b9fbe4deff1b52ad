//! gRPC in a closed loop, by nghttp2's `h2load`, which sends one request again and again.
//!
//! limitador-server is in no registry, so it is measured only if it is on PATH. throttlecrab serves gRPC too: another
//! service, with messages of about the same size.
//!
//! Always   No key reaches its limit: a load has fewer requests than any limit admits at once.
//! Note     h2load sends one message, so there is one key: many keys are not measured here.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::peers::{Peers, Wire};
use super::server::{Measured, Server, load, words};
use super::verdict::{Row, Target, print, turns};
use super::{CONNECTIONS, Scope};

const CRAB: &str = "throttlecrab";
const LIMITADOR: &str = "limitador";
const RLS: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// Numbers of streams per connection.
const STREAMS: &[u32] = &[1, 10];

/// A server, with the method and the message of its requests.
struct Call<'a> {
    name: &'static str,
    server: &'a Server,
    method: &'static str,
    message: Vec<u8>,
}

pub(super) fn run(peers: &Peers, scope: &Scope) -> anyhow::Result<()> {
    let targets =
        [Target::requests_at_least(CRAB, 0.95), Target::requests_at_least(LIMITADOR, 1.15)];
    for streams in STREAMS {
        let (ours, crab) = (peers.ours(Wire::Grpc)?, peers.throttlecrab(Wire::Grpc, 1)?);
        let limitador = peers.limitador(Wire::Grpc)?;
        let mut calls = vec![
            Call { name: "ours", server: &ours, method: RLS, message: rls() },
            Call {
                name: CRAB,
                server: &crab,
                method: "throttlecrab.RateLimiter/Throttle",
                message: throttle(),
            },
        ];
        calls.extend(limitador.as_ref().map(|server| Call {
            name: LIMITADOR,
            server,
            method: RLS,
            message: rls(),
        }));
        let rows = compare(peers, scope, &calls, *streams)?;
        println!("\ngRPC, {streams} streams per connection, one key");
        print(&rows, &targets);
    }
    Ok(())
}

fn compare(
    peers: &Peers,
    scope: &Scope,
    calls: &[Call<'_>],
    streams: u32,
) -> anyhow::Result<Vec<Row>> {
    let requests = if scope.is_quick { 60_000 } else { 150_000 };
    turns(calls.iter().map(|call| call.name), scope.rounds, |place| {
        let file = peers.directory.join("message.bin");
        fs::write(&file, framed(&calls[place].message))?;
        measure(&calls[place], &file, requests, streams)
    })
}

fn measure(call: &Call<'_>, file: &Path, requests: u32, streams: u32) -> anyhow::Result<Measured> {
    call.server.measure(|server| {
        let mut line = words(&format!("-n {requests} -c {CONNECTIONS} -m {streams} -t 1 -d"));
        line.push(file.display().to_string());
        for field in ["content-type: application/grpc", "te: trailers"] {
            line.extend(["-H".to_owned(), field.to_owned()]);
        }
        line.push(format!("http://127.0.0.1:{}/{}", server.port, call.method));
        let text = load(Path::new("h2load"), &line)?;
        // A gRPC error has status 200 too, and no body; the bytes of all bodies show it.
        let succeeded = format!("{requests} succeeded");
        anyhow::ensure!(
            text.contains(&succeeded),
            "{}: some requests were not answered: {text}",
            call.name
        );
        anyhow::ensure!(has_bodies(&text, requests), "{}: answers are empty: {text}", call.name);
        Ok((per_second(&text)?, f64::from(requests)))
    })
}

/// `finished in 1.20s, 83333.33 req/s, 9.54MB/s`
fn per_second(text: &str) -> anyhow::Result<f64> {
    let before = text.split(" req/s").next().and_then(|text| text.rsplit(' ').next());
    before.and_then(|number| number.parse().ok()).with_context(|| format!("h2load said `{text}`"))
}

/// `traffic: 4.60MB (4823210) total, 1.03MB (1080000) headers (…), 1.20MB (1260000) data`
fn has_bodies(text: &str, requests: u32) -> bool {
    let traffic = text.lines().find(|line| line.starts_with("traffic:")).unwrap_or_default();
    let data = traffic.rsplit('(').next().and_then(|rest| rest.split(')').next());
    data.and_then(|bytes| bytes.parse::<u64>().ok())
        .is_some_and(|bytes| bytes > 5 * u64::from(requests))
}

/// A message as gRPC sends it: not compressed, and its length.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// `RateLimitRequest { domain: "bench", descriptors: [{ entries: [{ key: "key", value: "user:1" }] }] }`
fn rls() -> Vec<u8> {
    let entry = [text(1, "key"), text(2, "user:1")].concat();
    let descriptor = field(1, &entry);
    [text(1, "bench"), field(2, &descriptor)].concat()
}

/// `ThrottleRequest { key, max_burst, count_per_period, period, quantity }`
fn throttle() -> Vec<u8> {
    // A million is 0xc0, 0x84, 0x3d in sevens of bits.
    let million = [0xc0, 0x84, 0x3d];
    [&text(1, "user:1")[..], &[0x10], &million, &[0x18], &million, &[0x20, 1, 0x28, 1]].concat()
}

fn text(number: u8, text: &str) -> Vec<u8> {
    field(number, text.as_bytes())
}

/// A field of bytes; all of ours are shorter than 128.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    [&[number << 3 | 2, length], bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_protobuf() {
        let expected = b"\x0a\x05bench\x12\x0f\x0a\x0d\x0a\x03key\x12\x06user:1";
        assert_eq!(rls(), expected);
        assert_eq!(&framed(&rls())[..5], [0, 0, 0, 0, 24]);
        assert!(throttle().starts_with(b"\x0a\x06user:1\x10\xc0\x84\x3d\x18"));
    }

    #[test]
    fn what_h2load_says_is_read() {
        let text = "finished in 1.20s, 83333.33 req/s, 9.54MB/s\nrequests: 10 total, 10 succeeded\n\
                    traffic: 4.60MB (4823) total, 1.03MB (108) headers (space savings 90%), 1.20MB (126) data";
        assert_eq!(per_second(text).ok(), Some(83_333.33));
        assert!(has_bodies(text, 10) && !has_bodies(text, 100));
        assert!(per_second("nothing").is_err());
    }
}
