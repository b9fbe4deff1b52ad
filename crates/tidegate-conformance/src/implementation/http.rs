//! HTTP: `/v1/check` and its siblings, as requests and JSON.

use super::resp::waits;
use super::wire::Speaker;
use super::{Answer, Patience, Refusal};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tidegate::{ManualClock, Retry, Span, Verdict};
use tidegate_server::http::answer;
use tidegate_server::server::Server;

/// Somebody with `curl`.
pub struct Http {
    server: Arc<Server>,
    patience: Patience,
}

const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 50_000);

impl Http {
    fn post(&self, path: &str, body: &Value) -> Result<Value, Refusal> {
        let request = ::http::Request::post(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(())
            .map_err(failed)?;
        let (parts, ()) = request.into_parts();
        let body = body.to_string();
        let answered = answer(&self.server, &parts, body.as_bytes(), PEER);
        let answered = self.patience.wait(answered).ok_or_else(waits)?;
        if !matches!(answered.status().as_u16(), 200 | 429) {
            return Err(Refusal::Failed(String::from_utf8_lossy(answered.body()).into_owned()));
        }
        serde_json::from_slice(answered.body()).map_err(failed)
    }

    fn ask(&self, path: &str, limit: &str, key: &str, cost: u64) -> Result<Value, Refusal> {
        self.post(path, &json!({ "limit": limit, "key": key, "cost": cost }))
    }
}

fn failed(error: impl std::fmt::Display) -> Refusal {
    Refusal::Failed(error.to_string())
}

fn read(said: &Value) -> Answer {
    let ms = |name: &str| said[name].as_u64().map(Span::from_millis);
    let verdict = match (said["allow"].as_bool(), ms("retry_after_ms"), ms("wait_ms")) {
        (Some(true), _, Some(wait)) => Verdict::Wait(wait),
        (Some(true), ..) => Verdict::Allow,
        (_, Some(retry), _) => Verdict::Deny(Retry::After(retry)),
        _ if said["on_release"] == true => Verdict::Deny(Retry::OnRelease),
        _ => Verdict::Deny(Retry::Never),
    };
    Answer {
        verdict,
        limit: said["limit"].as_u64(),
        remaining: said["remaining"].as_u64(),
        reset_after: ms("reset_after_ms"),
    }
}

impl Speaker for Http {
    fn new(server: Arc<Server>, patience: Patience, _: ManualClock) -> Self {
        Self { server, patience }
    }

    fn precision() -> Span {
        Span::from_millis(1)
    }

    fn check(&mut self, limit: &str, key: &str, cost: u64) -> Result<Answer, Refusal> {
        Ok(read(&self.ask("/v1/check", limit, key, cost)?))
    }

    fn check_all(&mut self, limits: &[String], key: &str, cost: u64) -> Result<Answer, Refusal> {
        let check = |limit: &String| json!({ "limit": limit, "key": key, "cost": cost });
        let checks: Vec<Value> = limits.iter().map(check).collect();
        Ok(read(&self.post("/v1/check", &json!({ "checks": checks }))?))
    }

    fn peek(&mut self, limit: &str, key: &str, cost: u64) -> Result<Answer, Refusal> {
        Ok(read(&self.ask("/v1/peek", limit, key, cost)?))
    }

    fn refund(&mut self, limit: &str, key: &str, cost: u64) -> Result<(), Refusal> {
        self.ask("/v1/refund", limit, key, cost).map(drop)
    }

    fn reset(&mut self, limit: &str, key: &str) -> Result<(), Refusal> {
        self.post("/v1/reset", &json!({ "limit": limit, "key": key })).map(drop)
    }

    fn acquire(
        &mut self,
        limit: &str,
        key: &str,
        cost: u64,
    ) -> Result<(Answer, Option<String>), Refusal> {
        let said = self.ask("/v1/acquire", limit, key, cost)?;
        Ok((read(&said), said["lease"].as_str().map(str::to_owned)))
    }

    fn release(&mut self, lease: &str) -> Result<(), Refusal> {
        self.post("/v1/release", &json!({ "lease": lease })).map(drop)
    }
}
