//! HTTP: `/v1/check` and its siblings, as requests and JSON.

use super::protocol_client::ProtocolClient;
use super::{DecisionResult, PartialDecision, Refusal, failed};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use tidegate::{ManualClock, Retry, Span, Verdict};
use tidegate_server::config::LimitConfig;
use tidegate_server::net::Addresses;
use tidegate_testbed::PATIENCE;

/// The largest integer that the server writes in JSON.
const JSON_INTEGER_MAX: u64 = (1 << 53) - 1;

/// An HTTP client with one connection.
pub struct Http {
    stream: BufReader<TcpStream>,
}

impl Http {
    fn post(&mut self, path: &str, body: &Value) -> Result<Value, Refusal> {
        let body = body.to_string();
        let (length, head) =
            (body.len(), "HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json");
        let request = format!("POST {path} {head}\r\ncontent-length: {length}\r\n\r\n{body}");
        self.stream.get_mut().write_all(request.as_bytes()).map_err(failed)?;
        let (status, body) = self.response().map_err(failed)?;
        if !matches!(status.as_str(), "200" | "429") {
            return Err(Refusal::Failed(String::from_utf8_lossy(&body).into_owned()));
        }
        serde_json::from_slice(&body).map_err(failed)
    }

    /// Sends a request, and returns the status and the body of the response.
    fn response(&mut self) -> io::Result<(String, Vec<u8>)> {
        let status = self.line()?.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut length = 0;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((status, body))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn ask(
        &mut self,
        path: &str,
        limit: &LimitConfig,
        key: &str,
        cost: u64,
    ) -> Result<Value, Refusal> {
        self.post(path, &json!({ "limit": limit.name, "key": key, "cost": cost }))
    }
}

fn read(body: &Value) -> PartialDecision {
    // The server writes this number for every larger one.
    let span = |ms| if ms == JSON_INTEGER_MAX { Span::MAX } else { Span::from_millis(ms) };
    let ms = |name: &str| body[name].as_u64().map(span);
    let verdict = match (body["allow"].as_bool(), ms("retry_after_ms"), ms("wait_ms")) {
        (Some(true), _, Some(wait)) => Verdict::Wait(wait),
        (Some(true), ..) => Verdict::Allow,
        (_, Some(retry), _) => Verdict::Deny(Retry::After(retry)),
        _ if body["on_release"] == true => Verdict::Deny(Retry::OnRelease),
        _ => Verdict::Deny(Retry::Never),
    };
    // Without a time, the key recovers only after a release.
    let reset_after =
        if body["reset_after_ms"].is_null() { Some(Span::MAX) } else { ms("reset_after_ms") };
    let (limit, remaining) = (body["limit"].as_u64(), body["remaining"].as_u64());
    PartialDecision { verdict: verdict.into(), limit, remaining, reset_after }
}

impl ProtocolClient for Http {
    fn connect(addresses: Addresses, _: &ManualClock) -> Result<Self, Refusal> {
        let address = addresses.http.ok_or_else(|| failed("the server has no HTTP listener"))?;
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    fn precision() -> Span {
        Span::from_millis(1)
    }

    fn check(&mut self, limit: &LimitConfig, key: &str, cost: u64) -> DecisionResult {
        Ok(read(&self.ask("/v1/check", limit, key, cost)?))
    }

    fn check_all(&mut self, limits: &[LimitConfig], key: &str, cost: u64) -> DecisionResult {
        let check = |limit: &LimitConfig| json!({ "limit": limit.name, "key": key, "cost": cost });
        let checks: Vec<Value> = limits.iter().map(check).collect();
        Ok(read(&self.post("/v1/check", &json!({ "checks": checks }))?))
    }

    fn peek(&mut self, limit: &LimitConfig, key: &str, cost: u64) -> DecisionResult {
        Ok(read(&self.ask("/v1/peek", limit, key, cost)?))
    }

    fn refund(&mut self, limit: &LimitConfig, key: &str, cost: u64) -> Result<(), Refusal> {
        self.ask("/v1/refund", limit, key, cost).map(drop)
    }

    fn reset(&mut self, limit: &LimitConfig, key: &str) -> Result<(), Refusal> {
        self.post("/v1/reset", &json!({ "limit": limit.name, "key": key })).map(drop)
    }

    fn acquire(
        &mut self,
        limit: &LimitConfig,
        key: &str,
        cost: u64,
    ) -> Result<(PartialDecision, Option<String>), Refusal> {
        let body = self.ask("/v1/acquire", limit, key, cost)?;
        Ok((read(&body), body["lease"].as_str().map(str::to_owned)))
    }

    fn release(&mut self, lease: &str) -> Result<(), Refusal> {
        self.post("/v1/release", &json!({ "lease": lease })).map(drop)
    }
}
