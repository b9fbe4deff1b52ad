//! Whether it lives, and whether it wants to be asked.
//!
//! Always   Health follows what decisions met, limit by limit: a store that answers a `PING` may refuse every decision.
//! Always   A store that does not decide is no reason not to be asked, as long as a limit answers without it: a client
//!          that asks another server fares no better. Only if every limit denies, because its `on_error` says so,
//!          is another server worth a try. What may hurt later is told, and is no reason either.

use crate::config::{Mode, OnError};
use crate::engine::{Engine, Limit};
use crate::escape::Escaped;
use crate::protocol::http::{Answered, Page, parameter};
use crate::server::Server;
use crate::server::status::RestoreResult;
use crate::store::{RedisBackend, ServerHealth, THROTTLES_NAME};
use http::{HeaderValue, StatusCode};
use std::io::Write;
use std::sync::atomic::Ordering;
use tidegate::Clock as _;
use tidegate_redis::{LimitHealth, LimitState};

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// It does, or nobody would answer.
pub(super) fn live() -> Answered {
    Page::new(StatusCode::OK).body(TEXT, |out| out.extend_from_slice(b"ok\n"))
}

/// The state of the server in one word, as `/readyz` and the dashboard have it; whether it wants to be asked is in the status.
pub(super) fn state(server: &Server, store: &Store) -> (StatusCode, &'static str) {
    if server.status.drain.has_begun() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else if store.is_denying() {
        (StatusCode::SERVICE_UNAVAILABLE, "denying")
    } else if store.is_degraded() {
        (StatusCode::OK, "degraded")
    } else {
        (StatusCode::OK, "ok")
    }
}

/// Not any more while it drains. An old configuration is no reason not to ask: it is in force.
pub(super) fn ready(server: &Server, query: Option<&str>) -> Answered {
    let is_draining = server.status.drain.has_begun();
    let is_stale = server.status.is_config_stale.load(Ordering::Relaxed);
    let store = Store::of(&server.engine);
    let (status, word) = state(server, &store);
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
            write_snapshot(server, out);
            write_log(server, out);
            let shared = server.engine.store().shared();
            for finding in shared.map(RedisBackend::findings).unwrap_or_default() {
                writeln!(out, "[!] the store at {finding}").expect("a buffer takes all");
            }
        }
        writeln!(out, "{word}").expect("a buffer takes all");
    })
}

/// Writes how snapshots go, if there are any.
fn write_snapshot(server: &Server, out: &mut Vec<u8>) {
    let status = &server.status.snapshot;
    let text = match status.restore() {
        None => return,
        Some(RestoreResult::Ok) => "[+] the start found the snapshot\n",
        Some(RestoreResult::None) => "[+] the start found no snapshot, and nothing wrong\n",
        Some(RestoreResult::Previous) => {
            "[!] the snapshot could not be used at the start; the one before it was\n"
        }
        Some(RestoreResult::Failed) => {
            "[!] no snapshot could be used at the start: debts are forgotten\n"
        }
    };
    out.extend_from_slice(text.as_bytes());
    let age = status.age(server.engine.clock().now()).unwrap_or_default();
    let seconds = age.as_micros() / 1_000_000;
    match status.last_problem() {
        None => writeln!(out, "[+] the last snapshot, or the start, was {seconds} s ago"),
        Some(problem) => {
            let problem = Escaped::new(problem.as_bytes());
            writeln!(out, "[!] the last snapshot could not be written: {problem}; that or the start was {seconds} s ago")
        }
    }
    .expect("a buffer takes all");
}

/// Writes how many lines of the log nobody can read, if there are any.
fn write_log(server: &Server, out: &mut Vec<u8>) {
    let lost = server.status.log.get().map_or(0, |drops| drops.lost());
    if lost > 0 {
        writeln!(out, "[!] {lost} lines of the log could not be written")
            .expect("a buffer takes all");
    }
}

/// How the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// In this process.
    Memory,
    /// Somewhere else, on these servers, as these limits have met it.
    Shared(Vec<ServerHealth>, Vec<Met>),
}

/// What the requests of a limit met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Met {
    limit: String,
    /// What happens without the store, if that is enforced on anybody.
    enforced: Option<OnError>,
    health: LimitHealth,
}

impl Met {
    fn of(limit: &Limit) -> Option<Self> {
        let health = limit.counters().shared()?.health();
        // A rule that admits nothing does not ask the store, so it does not say whether the store answers.
        let is_enforced = limit.mode() == Mode::Enforce && !limit.rule().admits_nothing();
        let enforced = is_enforced.then_some(limit.config().on_error);
        Some(Self { limit: limit.name().to_owned(), enforced, health })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let Self { limit, health, .. } = self;
        if !health.state.is_degraded() || health.last_failure.is_empty() {
            return;
        }
        let partly = if health.state == LimitState::Away { "" } else { "partly " };
        let why = &health.last_failure;
        writeln!(out, "[!] the limit `{limit}` is {partly}decided without the store: {why}")
            .expect("a buffer takes all");
    }
}

/// Why a limit is decided without the store, if it is.
pub(super) fn why_degraded(health: LimitHealth) -> Option<String> {
    let why = Some(health.last_failure).filter(|why| !why.is_empty());
    let unasked = || "a server of the store does not answer".to_owned();
    health.state.is_degraded().then(|| why.unwrap_or_else(unasked))
}

impl Store {
    pub(super) fn of(engine: &Engine) -> Self {
        let Some(store) = engine.store().shared() else { return Self::Memory };
        let limits = engine.limits();
        let unnamed = limits.unnamed();
        let named = limits.named().iter().filter_map(|limit| Met::of(limit));
        let unnamed = unnamed
            .iter()
            .filter_map(|limit| Met::of(limit))
            .map(|met| Met { enforced: None, ..met });
        let throttles = Met {
            limit: THROTTLES_NAME.to_owned(),
            enforced: None,
            health: store.throttle_health(),
        };
        Self::Shared(store.health(), named.chain(unnamed).chain([throttles]).collect())
    }

    /// Whether some decisions are made without it.
    pub(super) fn is_degraded(&self) -> bool {
        let Self::Shared(_, limits) = self else { return false };
        self.misses_servers() || limits.iter().any(|met| met.health.state.is_degraded())
    }

    /// Whether all of its servers answer, and no limit is decided without it alone.
    pub(super) fn is_up(&self) -> bool {
        let Self::Shared(_, limits) = self else { return true };
        !self.misses_servers() && limits.iter().all(|met| met.health.state != LimitState::Away)
    }

    /// Whether a server of it does not answer: then any limit may have keys there.
    fn misses_servers(&self) -> bool {
        let Self::Shared(servers, _) = self else { return false };
        servers.is_empty() || servers.iter().any(|server| server.why_down.is_some())
    }

    /// Whether no request passes any limit that is enforced. A limit that nobody asks would fare as those that are asked.
    fn is_denying(&self) -> bool {
        let Self::Shared(_, limits) = self else { return false };
        let mut enforced = limits.iter().filter_map(|met| Some((met.enforced?, met.health.state)));
        let denies = |(on_error, state)| {
            on_error == OnError::Deny && matches!(state, LimitState::Away | LimitState::Idle)
        };
        enforced.clone().any(|(_, state)| state == LimitState::Away) && enforced.all(denies)
    }

    /// What is wrong with it now, for people.
    pub(super) fn problems(&self) -> Vec<String> {
        let Self::Shared(servers, _) = self else { return Vec::new() };
        if servers.is_empty() {
            return vec!["no server of the store is known".to_owned()];
        }
        let down = servers.iter().filter_map(|server| {
            let why = server.why_down.as_ref()?;
            let seconds = server.since.as_micros() / 1_000_000;
            Some(format!("the store at {} does not answer, for {seconds} s: {why}", server.address))
        });
        down.collect()
    }

    fn write(&self, out: &mut Vec<u8>) {
        let Self::Shared(servers, limits) = self else { return };
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
        for met in limits {
            met.write(out);
        }
    }
}
