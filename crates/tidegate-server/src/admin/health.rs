//! Whether it lives, and whether it wants to be asked.
//!
//! Always   A store that does not answer is no reason not to be asked, as long as a limit answers without it: who
//!          asks another server fares no better. Only if every limit would deny, because its `on_error` says so,
//!          is another server worth a try. What may hurt later is told, and is no reason either.

use crate::config::{Mode, OnError};
use crate::engine::{Engine, Limit};
use crate::http::{Answered, Page, parameter};
use crate::server::Server;
use crate::store::ServerHealth;
use http::{HeaderValue, StatusCode};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// It does, or nobody would answer.
pub(super) fn live() -> Answered {
    Page::new(StatusCode::OK).body(TEXT, |out| out.extend_from_slice(b"ok\n"))
}

/// Not any more while it drains. An old configuration is no reason not to ask: it is in force.
pub(super) fn ready(server: &Server, query: Option<&str>) -> Answered {
    let is_draining = server.status.drain.has_begun();
    let is_stale = server.status.is_config_stale.load(Ordering::Relaxed);
    let store = Store::of(&server.engine);
    let (status, word) = if is_draining {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    } else if store.is_down() && denies_without_store(server.engine.limits().named()) {
        (StatusCode::SERVICE_UNAVAILABLE, "denying\n")
    } else if store.is_degraded() {
        (StatusCode::OK, "degraded\n")
    } else {
        (StatusCode::OK, "ok\n")
    };
    Page::new(status).body(TEXT, |out| {
        if parameter(query, "verbose").is_some() {
            let drain = if is_draining { "[-] draining\n" } else { "[+] not draining\n" };
            let config = if is_stale {
                "[!] the configuration could not be read again; the one before it is in force\n"
            } else {
                "[+] the configuration is in force\n"
            };
            out.extend_from_slice(drain.as_bytes());
            out.extend_from_slice(config.as_bytes());
            store.write(out);
            for finding in server.engine.store().findings() {
                writeln!(out, "[!] the store at {finding}").expect("a buffer takes all");
            }
        }
        out.extend_from_slice(word.as_bytes());
    })
}

/// Whether nobody passes any limit that is obeyed.
fn denies_without_store(limits: &[Arc<Limit>]) -> bool {
    let mut obeyed = limits.iter().filter(|limit| limit.mode() == Mode::Enforce).peekable();
    obeyed.peek().is_some() && obeyed.all(|limit| limit.config().on_error == OnError::Deny)
}

/// How the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// In this process.
    Memory,
    /// Somewhere else, on these servers.
    Shared(Vec<ServerHealth>),
}

impl Store {
    pub(super) fn of(engine: &Engine) -> Self {
        engine.store().health().map_or(Self::Memory, Self::Shared)
    }

    /// Whether some decisions are made without it.
    pub(super) fn is_degraded(&self) -> bool {
        match self {
            Self::Memory => false,
            Self::Shared(servers) => {
                servers.is_empty() || servers.iter().any(|server| server.why_down.is_some())
            }
        }
    }

    /// Whether all decisions are.
    fn is_down(&self) -> bool {
        match self {
            Self::Memory => false,
            Self::Shared(servers) => servers.iter().all(|server| server.why_down.is_some()),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let Self::Shared(servers) = self else { return };
        if servers.is_empty() {
            out.extend_from_slice(b"[!] no server of the store is known\n");
        }
        for ServerHealth { address, why_down, since } in servers {
            let seconds = since.as_micros() / 1_000_000;
            let (sign, answers, why) = match why_down {
                None => ('+', "answers", String::new()),
                Some(why) => ('!', "does not answer", format!(": {why}")),
            };
            writeln!(out, "[{sign}] the store at {address} {answers}, for {seconds} s{why}")
                .expect("a buffer takes all");
        }
    }
}
