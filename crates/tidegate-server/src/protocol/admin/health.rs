//! `/livez` and `/readyz`.
//!
//! Invariant Health follows the results of decisions, limit by limit: a store that answers a `PING` may refuse every decision.
//! Invariant A server whose store does not decide stays ready as long as one limit admits requests without it, because another server
//!           would do no better. It is not ready if every limit denies, as its `on_error` says. Warnings do not change readiness.

use crate::config::{Mode, OnError};
use crate::engine::{Engine, Limit};
use crate::escape::Escaped;
use crate::protocol::http::{RawResponse, ResponseBuilder, parameter};
use crate::server::Server;
use crate::server::status::RestoreResult;
use crate::store::{RedisBackend, ServerHealth, THROTTLES_NAME};
use http::{HeaderValue, StatusCode};
use std::io::Write;
use std::sync::atomic::Ordering;
use tidegate::Clock as _;
use tidegate_redis::{LimitHealth, LimitState};

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Answers `/livez`.
pub(super) fn live() -> RawResponse {
    ResponseBuilder::new(StatusCode::OK).body(TEXT, |out| out.extend_from_slice(b"ok\n"))
}

/// Returns the state of the server as a status code and the word that `/readyz` and the dashboard show.
pub(super) fn state(server: &Server, store: &StoreReport) -> (StatusCode, &'static str) {
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

/// Answers `/readyz`. The server stays ready after a failed reload: the previous configuration is in force.
pub(super) fn ready(server: &Server, query: Option<&str>) -> RawResponse {
    let is_draining = server.status.drain.has_begun();
    let is_stale = server.status.is_config_stale.load(Ordering::Relaxed);
    let store = StoreReport::of(&server.engine);
    let (status, word) = state(server, &store);
    ResponseBuilder::new(status).body(TEXT, |out| {
        if parameter(query, "verbose").is_some() {
            let drain = if is_draining { "[-] draining\n" } else { "[+] not draining\n" };
            let config = if is_stale {
                "[!] the last reload failed; the configuration before it is in force\n"
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
                let finding = finding.to_string();
                writeln!(out, "[!] the store at {}", Escaped::new(finding.as_bytes()))
                    .expect("writing to a vector cannot fail");
            }
        }
        writeln!(out, "{word}").expect("writing to a vector cannot fail");
    })
}

/// Writes the state of snapshots, if they are configured.
fn write_snapshot(server: &Server, out: &mut Vec<u8>) {
    let status = &server.status.snapshot;
    let text = match status.restore() {
        None => return,
        Some(RestoreResult::Ok) => "[+] the snapshot was restored at the start\n",
        Some(RestoreResult::None) => "[+] there was no snapshot at the start\n",
        Some(RestoreResult::Previous) => {
            "[!] the snapshot could not be restored at the start; the one before it was\n"
        }
        Some(RestoreResult::Failed) => {
            "[!] no snapshot could be restored at the start: all keys began fresh\n"
        }
    };
    out.extend_from_slice(text.as_bytes());
    let age = status.age(server.engine.clock().now()).unwrap_or_default();
    let seconds = age.as_micros() / 1_000_000;
    match status.last_problem() {
        None => writeln!(out, "[+] the last snapshot, or the start, was {seconds} s ago"),
        Some(problem) => {
            let problem = Escaped::new(problem.as_bytes());
            writeln!(out, "[!] the last snapshot could not be written: {problem}; the last successful one, or the start, was {seconds} s ago")
        }
    }
    .expect("writing to a vector cannot fail");
}

/// Writes the number of lost log lines, if there are any.
fn write_log(server: &Server, out: &mut Vec<u8>) {
    let lost = server.status.log.get().map_or(0, |drops| drops.lost());
    if lost > 0 {
        writeln!(out, "[!] {lost} lines of the log could not be written")
            .expect("writing to a vector cannot fail");
    }
}

/// The health of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreReport {
    /// Limits are in memory, which is always healthy.
    Memory,
    /// Limits are in Redis: the health of its servers, and the results of each limit's requests.
    Shared(Vec<ServerHealth>, Vec<LimitReport>),
}

/// The results of a limit's requests to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LimitReport {
    limit: String,
    /// The behaviour without the store, if the limit is enforced.
    enforced: Option<OnError>,
    health: LimitHealth,
}

impl LimitReport {
    fn of(limit: &Limit) -> Option<Self> {
        let health = limit.counters().shared()?.health();
        // A rule that admits nothing never uses the store.
        let is_enforced = limit.mode() == Mode::Enforce && !limit.rule().admits_nothing();
        let enforced = is_enforced.then_some(limit.config().on_error);
        Some(Self { limit: limit.name().to_owned(), enforced, health })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let Self { limit, health, .. } = self;
        if !health.state.is_degraded() || health.last_failure.is_empty() {
            return;
        }
        let partly = if health.state == LimitState::Down { "" } else { "partly " };
        let why = Escaped::new(health.last_failure.as_bytes());
        writeln!(out, "[!] the limit `{limit}` is {partly}decided without the store: {why}")
            .expect("writing to a vector cannot fail");
    }
}

/// Returns why a limit is decided without the store, if it is.
pub(super) fn why_degraded(health: LimitHealth) -> Option<String> {
    let why = Some(health.last_failure).filter(|why| !why.is_empty());
    let no_reason = || "a server of the store does not answer".to_owned();
    health.state.is_degraded().then(|| why.unwrap_or_else(no_reason))
}

impl StoreReport {
    pub(super) fn of(engine: &Engine) -> Self {
        let Some(store) = engine.store().shared() else { return Self::Memory };
        let limits = engine.limits();
        let unnamed = limits.unnamed();
        let named = limits.named().iter().filter_map(|limit| LimitReport::of(limit));
        let unnamed = unnamed
            .iter()
            .filter_map(|limit| LimitReport::of(limit))
            .map(|report| LimitReport { enforced: None, ..report });
        let throttles = LimitReport {
            limit: THROTTLES_NAME.to_owned(),
            enforced: None,
            health: store.throttle_health(),
        };
        Self::Shared(store.health(), named.chain(unnamed).chain([throttles]).collect())
    }

    /// Returns whether some decisions are made without the store.
    pub(super) fn is_degraded(&self) -> bool {
        let Self::Shared(_, limits) = self else { return false };
        self.misses_servers() || limits.iter().any(|report| report.health.state.is_degraded())
    }

    /// Returns whether all servers answer, and no limit is decided without the store only.
    pub(super) fn is_up(&self) -> bool {
        let Self::Shared(_, limits) = self else { return true };
        !self.misses_servers()
            && limits.iter().all(|report| report.health.state != LimitState::Down)
    }

    /// Returns whether a server does not answer: any limit may have keys there.
    fn misses_servers(&self) -> bool {
        let Self::Shared(servers, _) = self else { return false };
        servers.is_empty() || servers.iter().any(|server| server.why_down.is_some())
    }

    /// Returns whether every enforced limit denies all requests. A limit without requests counts as if it had some.
    fn is_denying(&self) -> bool {
        let Self::Shared(_, limits) = self else { return false };
        let mut enforced =
            limits.iter().filter_map(|report| Some((report.enforced?, report.health.state)));
        let denies = |(on_error, state)| {
            on_error == OnError::Deny && matches!(state, LimitState::Down | LimitState::Idle)
        };
        enforced.clone().any(|(_, state)| state == LimitState::Down) && enforced.all(denies)
    }

    /// Returns the present problems, for people.
    pub(super) fn problems(&self) -> Vec<String> {
        let Self::Shared(servers, _) = self else { return Vec::new() };
        if servers.is_empty() {
            return vec!["the store has no known server".to_owned()];
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
            out.extend_from_slice(b"[!] the store has no known server\n");
        }
        for ServerHealth { address, why_down, since } in servers {
            let seconds = since.as_micros() / 1_000_000;
            // Sentinels and clusters name the addresses.
            let address = Escaped::new(address.as_bytes());
            let (sign, answers, why) = match why_down {
                None => ('+', "answers", String::new()),
                Some(why) => {
                    ('!', "does not answer", format!(": {}", Escaped::new(why.as_bytes())))
                }
            };
            writeln!(out, "[{sign}] the store at {address} {answers}, for {seconds} s{why}")
                .expect("writing to a vector cannot fail");
        }
        for report in limits {
            report.write(out);
        }
    }
}
