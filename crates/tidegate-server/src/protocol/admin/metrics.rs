//! `/metrics`: all counters, read at each collection.
//!
//! Bound     Labels come from the configuration: a limit's name, a listener, a decision. All ad-hoc rules together have the label `*`,
//!           and `CL.THROTTLE` has one of its own. So there are 8 series for each of these labels, 7 more with Redis, and at most 83
//!           without them.

mod latency;
#[cfg(target_os = "linux")]
mod process;
mod status;

use super::exposition;
use super::health::StoreReport;
use super::limits::distinct;
use crate::engine::Limit;
use crate::protocol::http::{RawResponse, ResponseBuilder};
use crate::server::{ByListener, Server};
use crate::store::THROTTLES_NAME;
use http::{HeaderMap, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::store::Stats;

/// The label of ad-hoc rules.
const UNNAMED: &str = "*";

/// Answers `/metrics` in the format that the collector accepts.
pub(super) fn answer(server: &Arc<Server>, headers: &HeaderMap) -> RawResponse {
    let mut registry = Registry::with_prefix("tidegate");
    registry.register_collector(Box::new(Metrics { server: Arc::clone(server) }));
    // The names that every Prometheus client uses have no prefix.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(unused_mut, reason = "there is nothing to collect")
    )]
    let mut standard = Registry::default();
    #[cfg(target_os = "linux")]
    standard.register_collector(Box::new(process::Process));
    let mut all = String::with_capacity(16 << 10);
    text::encode_registry(&mut all, &registry).expect("writing to a string cannot fail");
    text::encode_registry(&mut all, &standard).expect("writing to a string cannot fail");
    text::encode_eof(&mut all).expect("writing to a string cannot fail");
    let (content_type, all) = exposition::negotiated(headers, all);
    ResponseBuilder::new(StatusCode::OK)
        .body(content_type, |out| out.extend_from_slice(all.as_bytes()))
}

#[derive(Debug)]
struct Metrics {
    server: Arc<Server>,
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let counted = counted(&self.server);
        limits(&mut encoder, &counted)?;
        self.listeners(&mut encoder)?;
        self.certificates(&mut encoder)?;
        self.configuration(&mut encoder)?;
        self.store(&mut encoder, &counted)?;
        latency::encode(&self.server, &mut encoder)?;
        status::encode(&self.server, &mut encoder)?;
        let is_draining = u64::from(self.server.status.drain.has_begun());
        let help = "Whether the server is draining connections before it stops";
        gauge(&mut encoder, "draining", help, &is_draining)?;
        encoder
            .encode_descriptor("build", "Version of the server", None, MetricType::Info)?
            .encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
    }
}

impl Metrics {
    fn listeners(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let status = &self.server.status;
        let help = "Open connections";
        gauges(encoder, "connections", help, "listener", by_listener(&status.connections))?;
        for (name, help, numbers) in [
            ("connections_rejected", "Rejected connections", &status.rejected),
            (
                "requests_refused",
                "Requests rejected because too many were waiting",
                &status.refused,
            ),
            ("wrong_tokens", "Requests with a wrong token", &status.wrong_tokens),
        ] {
            counters(encoder, name, help, "listener", by_listener(numbers))?;
        }
        let waiting = status.waiting.load(Ordering::Relaxed) as u64;
        let help = "Requests that wait for the store or for their turn";
        gauge(encoder, "requests_waiting", help, &waiting)?;
        let rules = self.server.engine.limits().unnamed().len() as u64;
        gauge(encoder, "ad_hoc_rules", "Ad-hoc rules in use, of at most 1024", &rules)
    }

    fn certificates(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let config = self.server.config();
        let expiry = config.server.listeners().filter_map(|(wire, _)| {
            let expires = config.server.tls_of(wire)?.credentials.expires()?;
            Some((wire.label(), expires.as_micros() / 1_000_000))
        });
        let help = "Expiry of the first certificate in the listener's chain to expire, in seconds since 1970";
        gauges(encoder, "tls_certificate_expiry_timestamp_seconds", help, "listener", expiry)
    }

    fn store(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        limits: &[LimitSeries],
    ) -> Result<(), Error> {
        let store = StoreReport::of(&self.server.engine);
        let help = "Whether all servers of the store answer and the store decides for every limit; always 1 in memory";
        gauge(encoder, "store_up", help, &u64::from(store.is_up()))?;
        if store == StoreReport::Memory {
            return Ok(());
        }
        let help =
            "Whether some decisions of the limit are made without the store, as its on_error says";
        let degraded = limits.iter().map(|one| (&*one.limit, u64::from(one.is_degraded)));
        gauges(encoder, "degraded", help, "limit", degraded)?;
        let help = "Requests that the store did not decide, by kind of failure";
        let mut failures =
            encoder.encode_descriptor("store_failures", help, None, MetricType::Counter)?;
        for one in limits {
            for (kind, number) in &one.failed_by_kind {
                let labels = [("limit", &*one.limit), ("kind", *kind)];
                counter(&mut failures.encode_family(&labels)?, *number)?;
            }
        }
        Ok(())
    }

    fn configuration(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let status = &self.server.status;
        let reloads = [("ok", &status.reloads), ("error", &status.failed_reloads)]
            .map(|(result, number)| (result, number.load(Ordering::Relaxed)));
        let help = "Reloads of the configuration, by result";
        counters(encoder, "config_reload", help, "result", reloads)?;
        let is_stale = u64::from(status.is_config_stale.load(Ordering::Relaxed));
        let help = "Whether the last reload failed, so that an older configuration is in force";
        gauge(encoder, "config_stale", help, &is_stale)
    }
}

/// The values of one limit, or of all ad-hoc rules.
#[derive(Debug, Default)]
struct LimitSeries {
    limit: String,
    allow: u64,
    deny: u64,
    wait: u64,
    shadow_deny: u64,
    overflowed: u64,
    forgotten: u64,
    keys: u64,
    keys_max: u64,
    /// Empty if limits are in memory.
    failed_by_kind: Vec<(&'static str, u64)>,
    is_degraded: bool,
}

impl LimitSeries {
    fn add(&mut self, limit: &Limit) {
        self.add_stats(&limit.counters().stats());
        self.deny += limit.denied();
        self.shadow_deny += limit.shadow_denied();
        if let Some(shared) = limit.counters().shared() {
            self.add_failed(shared.failures());
            self.is_degraded |= shared.health().state.is_degraded();
        }
    }

    /// Adds statistics without denials, which depend on the limit's mode.
    fn add_stats(&mut self, stats: &Stats) {
        self.allow += stats.allowed;
        self.wait += stats.waited;
        self.overflowed += stats.overflowed;
        self.forgotten += stats.evicted;
        self.keys += stats.keys as u64;
        self.keys_max += stats.max_keys as u64;
    }

    /// Adds failures. The kinds and their order are always the same.
    fn add_failed(&mut self, failed: Vec<(&'static str, u64)>) {
        if self.failed_by_kind.is_empty() {
            self.failed_by_kind = failed;
            return;
        }
        for ((_, sum), (_, number)) in self.failed_by_kind.iter_mut().zip(failed) {
            *sum += number;
        }
    }
}

fn counted(server: &Server) -> Vec<LimitSeries> {
    let limits = server.engine.limits();
    let named = limits.named().iter().map(|limit| {
        let mut counted = LimitSeries { limit: limit.name().to_owned(), ..LimitSeries::default() };
        counted.add(limit);
        counted
    });
    let mut unnamed = LimitSeries { limit: UNNAMED.to_owned(), ..LimitSeries::default() };
    // One consistent view: otherwise a rule that is removed meanwhile would be counted twice, or not at all.
    let (present, removed) = limits.unnamed_and_gone();
    for limit in distinct(&present) {
        unnamed.add(limit);
    }
    unnamed.add_stats(&removed.stats);
    unnamed.deny += removed.stats.denied;
    unnamed.add_failed(removed.failures);
    named.chain([unnamed, throttled(server)]).collect()
}

/// Returns the values of `CL.THROTTLE`.
fn throttled(server: &Server) -> LimitSeries {
    let store = server.engine.store();
    let stats = store.throttle_stats();
    let (limit, deny) = (THROTTLES_NAME.to_owned(), stats.denied);
    let mut counted = LimitSeries { limit, deny, ..LimitSeries::default() };
    counted.add_stats(&stats);
    if let Some(shared) = store.shared() {
        counted.add_failed(shared.throttle_failures());
        counted.is_degraded = shared.throttle_health().state.is_degraded();
    }
    counted
}

fn limits(encoder: &mut DescriptorEncoder<'_>, counted: &[LimitSeries]) -> Result<(), Error> {
    let help =
        "Requests by decision; shadow_deny: allowed only because the limit is in shadow mode";
    let mut decisions = encoder.encode_descriptor("decisions", help, None, MetricType::Counter)?;
    for one in counted {
        let by_decision = [
            ("allow", one.allow),
            ("deny", one.deny),
            ("wait", one.wait),
            ("shadow_deny", one.shadow_deny),
        ];
        for (decision, number) in by_decision {
            let labels = [("limit", &*one.limit), ("decision", decision)];
            counter(&mut decisions.encode_family(&labels)?, number)?;
        }
    }
    for (name, help, value) in GAUGES {
        gauges(encoder, name, help, "limit", counted.iter().map(|one| (&*one.limit, value(one))))?;
    }
    for (name, help, value) in COUNTERS {
        counters(
            encoder,
            name,
            help,
            "limit",
            counted.iter().map(|one| (&*one.limit, value(one))),
        )?;
    }
    Ok(())
}

/// A metric's name, its help, and its value.
type Series = (&'static str, &'static str, fn(&LimitSeries) -> u64);

const GAUGES: [Series; 2] = [
    ("keys", "Keys in memory", |counted| counted.keys),
    ("keys_max", "Maximum number of keys in memory", |counted| counted.keys_max),
];

const COUNTERS: [Series; 2] = [
    ("keys_forgotten", "Idle keys evicted", |counted| counted.forgotten),
    (
        "overflow_decisions",
        "Decisions for keys that share the overflow state because the table was full",
        |counted| counted.overflowed,
    ),
];

fn by_listener(numbers: &ByListener) -> [(&'static str, u64); 4] {
    let number = |number: &AtomicU64| number.load(Ordering::Relaxed);
    [
        ("resp", number(&numbers.resp)),
        ("http", number(&numbers.http)),
        ("grpc", number(&numbers.grpc)),
        ("admin", number(&numbers.admin)),
    ]
}

/// Encodes a gauge without labels.
fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: &impl EncodeGaugeValue,
) -> Result<(), Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(value)
}

/// Encodes a gauge with one label.
fn gauges<'l>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: impl IntoIterator<Item = (&'l str, u64)>,
) -> Result<(), Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (value_of_label, value) in values {
        family.encode_family(&[(label, value_of_label)])?.encode_gauge(&value)?;
    }
    Ok(())
}

/// Encodes a counter with one label.
fn counters<'l>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: impl IntoIterator<Item = (&'l str, u64)>,
) -> Result<(), Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (value_of_label, value) in values {
        counter(&mut family.encode_family(&[(label, value_of_label)])?, value)?;
    }
    Ok(())
}

fn counter(encoder: &mut MetricEncoder<'_>, number: u64) -> Result<(), Error> {
    encoder.encode_counter::<NoLabelSet, _, u64>(&number, None)
}

fn counter_f64(encoder: &mut MetricEncoder<'_>, number: f64) -> Result<(), Error> {
    encoder.encode_counter::<NoLabelSet, _, u64>(&number, None)
}
