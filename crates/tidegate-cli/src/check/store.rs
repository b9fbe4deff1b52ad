//! `tidegate check --connect`: whether the configured Redis answers, and what is wrong with its settings.

use serde::Serialize;
use std::io::Write;
use tidegate_redis::{ProblemKind, RedisStore};
use tidegate_server::config::Config;
use tidegate_server::escape::Escaped;

/// The state of the configured store.
#[derive(Debug, Serialize)]
pub(super) struct StoreReport {
    /// `None` if limits are kept in memory.
    url: Option<String>,
    servers: Vec<ServerReport>,
    /// Problems of a server that answers: key eviction, missing permissions, an old release.
    findings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct Finding {
    address: String,
    text: String,
}

#[derive(Debug, Serialize)]
struct ServerReport {
    address: String,
    is_up: bool,
    why_down: Option<String>,
}

/// Connects to the store, and checks its settings.
pub(super) fn examine(config: &Config) -> anyhow::Result<StoreReport> {
    let Some(store) = &config.store else {
        return Ok(StoreReport { url: None, servers: Vec::new(), findings: Vec::new() });
    };
    let (address, settings) = tidegate_server::config::store_client(store);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (health, findings) = runtime.block_on(async {
        let connected = RedisStore::connect_with(&address, settings).await;
        (connected.health(), connected.examine().await)
    });
    let server = |health: tidegate_redis::ServerHealth| ServerReport {
        why_down: (!health.is_up).then_some(health.why_down),
        is_up: health.is_up,
        address: health.address,
    };
    // A server that does not answer is already reported in `servers`.
    let findings = findings.into_iter().filter(|it| it.kind != ProblemKind::Unreachable);
    let findings = findings.map(|it| Finding { address: it.address, text: it.text }).collect();
    let servers = health.into_iter().map(server).collect();
    Ok(StoreReport { url: Some(address.to_string()), servers, findings })
}

impl StoreReport {
    /// Returns whether every server answers and none has a problem.
    pub(super) fn is_good(&self) -> bool {
        let answers = !self.servers.is_empty() && self.servers.iter().all(|server| server.is_up);
        self.url.is_none() || (answers && self.findings.is_empty())
    }

    pub(super) fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let Some(url) = &self.url else {
            return writeln!(out, "store: memory; no connection is needed");
        };
        if self.servers.is_empty() {
            writeln!(out, "store: {url} names no server that can be reached")?;
        }
        for ServerReport { address, why_down, .. } in &self.servers {
            // Sentinels and clusters name the addresses.
            let address = Escaped::new(address.as_bytes());
            match why_down {
                None => writeln!(out, "store: {address} answers")?,
                Some(why) => {
                    let why = Escaped::new(why.as_bytes());
                    writeln!(out, "store: {address} does not answer: {why}")?;
                }
            }
        }
        for Finding { address, text } in &self.findings {
            let finding = format!("{address}: {text}");
            writeln!(out, "store: {}", Escaped::new(finding.as_bytes()))?;
        }
        Ok(())
    }
}
