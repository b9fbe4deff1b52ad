//! The store that a configuration names: whether it answers, and what an operator should know about it.

use serde::Serialize;
use std::io::Write;
use tidegate_redis::{Concern, RedisStore};
use tidegate_server::config::Config;

/// What was found where the store should be.
#[derive(Debug, Serialize)]
pub(super) struct Store {
    /// None if limits are in memory.
    url: Option<String>,
    servers: Vec<Server>,
    /// What may hurt later: keys that are thrown away, permissions that are missing, an old release.
    findings: Vec<Found>,
}

#[derive(Debug, Serialize)]
struct Found {
    address: String,
    text: String,
}

#[derive(Debug, Serialize)]
struct Server {
    address: String,
    is_up: bool,
    why_down: Option<String>,
}

/// Goes there.
pub(super) fn look(config: &Config) -> anyhow::Result<Store> {
    let Some(store) = &config.store else {
        return Ok(Store { url: None, servers: Vec::new(), findings: Vec::new() });
    };
    let (address, settings) = tidegate_server::config::store_client(store);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (health, findings) = runtime.block_on(async {
        let connected = RedisStore::connect_with(&address, settings).await;
        (connected.health(), connected.examine().await)
    });
    let server = |health: tidegate_redis::Health| Server {
        why_down: (!health.is_up).then_some(health.why_down),
        is_up: health.is_up,
        address: health.address,
    };
    // Who does not answer is told about once.
    let findings = findings.into_iter().filter(|it| it.concern != Concern::Unreachable);
    let findings = findings.map(|it| Found { address: it.address, text: it.text }).collect();
    let servers = health.into_iter().map(server).collect();
    Ok(Store { url: Some(address.to_string()), servers, findings })
}

impl Store {
    /// Whether there is nothing to complain about.
    pub(super) fn is_good(&self) -> bool {
        let answers = !self.servers.is_empty() && self.servers.iter().all(|server| server.is_up);
        self.url.is_none() || (answers && self.findings.is_empty())
    }

    pub(super) fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let Some(url) = &self.url else {
            return writeln!(out, "store: memory, there is nowhere to connect to");
        };
        if self.servers.is_empty() {
            writeln!(out, "store: no server is known at {url}")?;
        }
        for Server { address, why_down, .. } in &self.servers {
            match why_down {
                None => writeln!(out, "store: {address} answers")?,
                Some(why) => writeln!(out, "store: {address} does not answer: {why}")?,
            }
        }
        for Found { address, text } in &self.findings {
            writeln!(out, "store: {address}: {text}")?;
        }
        Ok(())
    }
}
