//! `/metrics`: everything that is counted, read when somebody collects it.
//!
//! Always   Labels come from the configuration: a limit's name, a listener, a decision. Limits that were asked for by
//!          rule text are one, named `*`, and what `CL.THROTTLE` counts is one of that name. So there are never more
//!          series than 9 for each limit, 7 more where they are in Redis, and 84 besides.

mod latency;
#[cfg(target_os = "linux")]
mod process;
mod status;

use super::exposition;
use super::health::Store;
use super::limits::distinct;
use crate::engine::Limit;
use crate::protocol::http::{Answered, Page};
use crate::server::{ByListener, Server};
use crate::store::THROTTLES_NAME;
use http::{HeaderMap, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::store::Stats;

/// What limits are called that have no name.
const UNNAMED: &str = "*";

/// The whole of it, written as these headers want it.
pub(super) fn answer(server: &Arc<Server>, headers: &HeaderMap) -> Answered {
    let mut registry = Registry::with_prefix("tidegate");
    registry.register_collector(Box::new(Metrics { server: Arc::clone(server) }));
    // Under the names that every Prometheus client uses, which do not begin with ours.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(unused_mut, reason = "there is nothing to collect")
    )]
    let mut standard = Registry::default();
    #[cfg(target_os = "linux")]
    standard.register_collector(Box::new(process::Process));
    let mut all = String::with_capacity(16 << 10);
    text::encode_registry(&mut all, &registry).expect("a text takes all");
    text::encode_registry(&mut all, &standard).expect("a text takes all");
    text::encode_eof(&mut all).expect("a text takes all");
    let (kind, all) = exposition::wanted(headers, all);
    Page::new(StatusCode::OK).body(kind, |out| out.extend_from_slice(all.as_bytes()))
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
        let draining = u64::from(self.server.status.drain.has_begun());
        let help = "Whether the server is on its way out";
        encoder
            .encode_descriptor("draining", help, None, MetricType::Gauge)?
            .encode_gauge(&draining)?;
        encoder
            .encode_descriptor("build", "Which version this is", None, MetricType::Info)?
            .encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
    }
}

impl Metrics {
    fn listeners(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let status = &self.server.status;
        let help = "Connections that are open";
        let mut open = encoder.encode_descriptor("connections", help, None, MetricType::Gauge)?;
        for (listener, number) in by_listener(&status.connections) {
            open.encode_family(&[("listener", listener)])?.encode_gauge(&number)?;
        }
        let help = "Connections that were turned away";
        let mut rejected =
            encoder.encode_descriptor("connections_rejected", help, None, MetricType::Counter)?;
        for (listener, number) in by_listener(&status.rejected) {
            counter(&mut rejected.encode_family(&[("listener", listener)])?, number)?;
        }
        let help = "Requests that wait for a store or for their turn";
        let waiting = status.waiting.load(Ordering::Relaxed) as u64;
        encoder
            .encode_descriptor("requests_waiting", help, None, MetricType::Gauge)?
            .encode_gauge(&waiting)?;
        let help = "Rules without a name that there are, of 1024";
        let rules = self.server.engine.limits().unnamed().len() as u64;
        encoder
            .encode_descriptor("ad_hoc_rules", help, None, MetricType::Gauge)?
            .encode_gauge(&rules)?;
        let help = "Requests that were refused because too many waited";
        let mut refused =
            encoder.encode_descriptor("requests_refused", help, None, MetricType::Counter)?;
        for (listener, number) in by_listener(&status.refused) {
            counter(&mut refused.encode_family(&[("listener", listener)])?, number)?;
        }
        let help = "Wrong tokens that were offered";
        let mut wrong =
            encoder.encode_descriptor("wrong_tokens", help, None, MetricType::Counter)?;
        for (listener, number) in by_listener(&status.wrong_tokens) {
            counter(&mut wrong.encode_family(&[("listener", listener)])?, number)?;
        }
        Ok(())
    }

    fn certificates(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let help =
            "When the first certificate of the listener's chain expires, in seconds since 1970";
        let name = "tls_certificate_expiry_timestamp_seconds";
        let mut expiry = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        let config = self.server.config();
        for (wire, _) in config.server.listeners() {
            let tls = config.server.tls_of(wire);
            if let Some(expires) = tls.and_then(|tls| tls.credentials.expires()) {
                let seconds = expires.as_micros() / 1_000_000;
                expiry.encode_family(&[("listener", wire.label())])?.encode_gauge(&seconds)?;
            }
        }
        Ok(())
    }

    fn store(&self, encoder: &mut DescriptorEncoder<'_>, counted: &[Counted]) -> Result<(), Error> {
        let store = Store::of(&self.server.engine);
        let help = "Whether all servers of the store answer, and it decides for every limit; memory always does";
        encoder
            .encode_descriptor("store_up", help, None, MetricType::Gauge)?
            .encode_gauge(&u64::from(store.is_up()))?;
        if store == Store::Memory {
            return Ok(());
        }
        let help = "Whether some of its decisions are made without the store, as its on_error says";
        let mut degraded = encoder.encode_descriptor("degraded", help, None, MetricType::Gauge)?;
        for one in counted {
            let is_degraded = u64::from(one.is_degraded);
            degraded.encode_family(&[("limit", &*one.limit)])?.encode_gauge(&is_degraded)?;
        }
        let help = "Requests that the store did not decide, by what happened to them";
        let mut failures =
            encoder.encode_descriptor("store_failures", help, None, MetricType::Counter)?;
        for one in counted {
            for (kind, number) in &one.failed_by_kind {
                let labels = [("limit", &*one.limit), ("kind", *kind)];
                counter(&mut failures.encode_family(&labels)?, *number)?;
            }
        }
        Ok(())
    }

    fn configuration(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let status = &self.server.status;
        let help = "How often the configuration was read again";
        let mut reloads =
            encoder.encode_descriptor("config_reload", help, None, MetricType::Counter)?;
        for (result, number) in [("ok", &status.reloads), ("error", &status.failed_reloads)] {
            let number = number.load(Ordering::Relaxed);
            counter(&mut reloads.encode_family(&[("result", result)])?, number)?;
        }
        let stale = u64::from(status.is_config_stale.load(Ordering::Relaxed));
        let help = "Whether the last reload failed, so that an older configuration is in force";
        encoder
            .encode_descriptor("config_stale", help, None, MetricType::Gauge)?
            .encode_gauge(&stale)
    }
}

/// What one limit has counted, or all that have no name.
#[derive(Debug, Default)]
struct Counted {
    limit: String,
    allow: u64,
    deny: u64,
    wait: u64,
    shadow_deny: u64,
    overflowed: u64,
    forgotten: u64,
    keys: u64,
    keys_max: u64,
    /// Where limits are in a store that others share.
    failed_by_kind: Vec<(&'static str, u64)>,
    is_degraded: bool,
}

impl Counted {
    fn add(&mut self, limit: &Limit) {
        self.add_stats(&limit.counters().stats());
        self.deny += limit.denied();
        self.shadow_deny += limit.shadow_denied();
        if let Some(shared) = limit.counters().shared() {
            self.add_failed(shared.failures());
            self.is_degraded |= shared.health().state.is_degraded();
        }
    }

    /// But for who was denied: that is for who knows of the shadow to say.
    fn add_stats(&mut self, stats: &Stats) {
        self.allow += stats.allowed;
        self.wait += stats.waited;
        self.overflowed += stats.overflowed;
        self.forgotten += stats.evicted;
        self.keys += stats.keys as u64;
        self.keys_max += stats.max_keys as u64;
    }

    /// Kinds are the same always, and in the same order.
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

fn counted(server: &Server) -> Vec<Counted> {
    let limits = server.engine.limits();
    let named = limits.named().iter().map(|limit| {
        let mut counted = Counted { limit: limit.name().to_owned(), ..Counted::default() };
        counted.add(limit);
        counted
    });
    let mut unnamed = Counted { limit: UNNAMED.to_owned(), ..Counted::default() };
    // As of one moment, and held until it is counted: what goes meanwhile would be counted twice, or not at all.
    let (there, gone) = limits.unnamed_and_gone();
    for limit in distinct(&there) {
        unnamed.add(limit);
    }
    unnamed.add_stats(&gone);
    unnamed.deny += gone.denied;
    named.chain([unnamed, throttled(server)]).collect()
}

/// What was decided about keys whose rates come with the requests.
fn throttled(server: &Server) -> Counted {
    let store = server.engine.store();
    let stats = store.throttle_stats();
    let (limit, deny) = (THROTTLES_NAME.to_owned(), stats.denied);
    let mut counted = Counted { limit, deny, ..Counted::default() };
    counted.add_stats(&stats);
    if let Some(shared) = store.shared() {
        counted.add_failed(shared.throttle_failures());
        counted.is_degraded = shared.throttle_health().state.is_degraded();
    }
    counted
}

fn limits(encoder: &mut DescriptorEncoder<'_>, counted: &[Counted]) -> Result<(), Error> {
    let help =
        "Requests by what was decided; shadow_deny passed only because the limit is in the shadow";
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
    for (name, help, of) in GAUGES {
        let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for one in counted {
            gauge.encode_family(&[("limit", &*one.limit)])?.encode_gauge(&of(one))?;
        }
    }
    for (name, help, of) in COUNTERS {
        let mut all = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for one in counted {
            counter(&mut all.encode_family(&[("limit", &*one.limit)])?, of(one))?;
        }
    }
    Ok(())
}

/// A name, what it is, and where it is found.
type Series = (&'static str, &'static str, fn(&Counted) -> u64);

const GAUGES: [Series; 2] = [
    ("keys", "Keys that are remembered", |counted| counted.keys),
    ("keys_max", "The most keys that are ever remembered", |counted| counted.keys_max),
];

const COUNTERS: [Series; 2] = [
    ("keys_forgotten", "Keys at rest that were forgotten", |counted| counted.forgotten),
    ("overflow_decisions", "Decisions about keys for which there was no room", |counted| {
        counted.overflowed
    }),
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

fn counter(encoder: &mut MetricEncoder<'_>, number: u64) -> Result<(), Error> {
    encoder.encode_counter::<NoLabelSet, _, u64>(&number, None)
}

fn counter_f64(encoder: &mut MetricEncoder<'_>, number: f64) -> Result<(), Error> {
    encoder.encode_counter::<NoLabelSet, _, u64>(&number, None)
}
