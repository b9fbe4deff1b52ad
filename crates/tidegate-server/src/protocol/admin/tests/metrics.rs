//! Tests of `/metrics`.
#![expect(clippy::float_cmp, reason = "counts are exact")]

use super::{TOKEN, ask, get, harness, throttle};
use crate::config::{Config, LimitConfig, Mode};
use crate::protocol::http::tests::{Harness, limit};
use crate::server::status::{DropReason, RestoreResult};
use crate::tls::tests::Files;
use http::Request;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidegate::{Clock as _, Span};

#[tokio::test]
async fn decisions_are_counted_by_limit_and_kind() {
    let harness = harness();
    harness.check(r#"{"limit":"api","key":"alice","cost":10}"#).await;
    harness.check(r#"{"limit":"api","key":"alice"}"#).await;
    harness.check(r#"{"rule":"5/s queue","key":"alice"}"#).await;
    harness.check(r#"{"rule":"5/s queue","key":"alice"}"#).await;
    throttle(&harness, 3).await;
    harness.server.status.connections.http.store(3, Ordering::Relaxed);
    harness.server.status.failed_reloads.store(2, Ordering::Relaxed);
    let request = || Request::get("/metrics").header("host", "localhost");
    assert_eq!(ask(&harness, request().header("authorization", "Bearer guess")).await.status, 401);
    let request = request().header("authorization", TOKEN);
    let reply = ask(&harness, request.header("accept", "application/openmetrics-text;q=0.9")).await;
    assert_eq!(
        reply.field("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    let lines = [
        r#"tidegate_decisions_total{limit="api",decision="allow"} 1"#,
        r#"tidegate_decisions_total{limit="api",decision="deny"} 1"#,
        r#"tidegate_decisions_total{limit="*",decision="wait"} 1"#,
        r#"tidegate_decisions_total{limit="CL.THROTTLE",decision="allow"} 1"#,
        r#"tidegate_decisions_total{limit="CL.THROTTLE",decision="deny"} 2"#,
        r#"tidegate_keys{limit="CL.THROTTLE"} 1"#,
        r#"tidegate_keys_max{limit="CL.THROTTLE"} 16777216"#,
        r#"tidegate_overflow_decisions_total{limit="CL.THROTTLE"} 0"#,
        r#"tidegate_keys{limit="api"} 1"#,
        r#"tidegate_overflow_decisions_total{limit="api"} 0"#,
        r#"tidegate_keys_forgotten_total{limit="api"} 0"#,
        r#"tidegate_connections{listener="http"} 3"#,
        r#"tidegate_connections_rejected_total{listener="resp"} 0"#,
        "tidegate_requests_waiting 0",
        "tidegate_ad_hoc_rules 1",
        r#"tidegate_requests_refused_total{listener="grpc"} 0"#,
        r#"tidegate_wrong_tokens_total{listener="admin"} 1"#,
        r#"tidegate_config_reload_total{result="error"} 2"#,
        "tidegate_config_stale 0",
        "tidegate_draining 0",
        "# TYPE tidegate_decisions counter",
    ];
    for line in lines {
        assert!(reply.text.lines().any(|other| other == line), "{line}\nis not in\n{}", reply.text);
    }
    assert!(reply.text.contains("tidegate_build_info{version=\""));
    assert!(reply.text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn collectors_that_do_not_accept_openmetrics_get_the_text_format() {
    let reply = get(&harness(), "/metrics").await;
    let kind = Some("text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(reply.field("content-type"), kind);
    assert!(reply.text.contains("# TYPE tidegate_decisions_total counter\n"), "{}", reply.text);
    assert!(!reply.text.contains("# EOF"), "{}", reply.text);
}

#[tokio::test]
async fn a_denial_in_shadow_mode_is_not_counted_as_denied() {
    let shy = LimitConfig { mode: Mode::Shadow, ..limit("shy", "1/min") };
    let harness = Harness::with(Config { limits: vec![shy], ..Config::default() });
    for _ in 0..3 {
        harness.check(r#"{"limit":"shy","key":"alice"}"#).await;
    }
    let text = get(&harness, "/metrics").await.text;
    for (decision, number) in [("allow", 1), ("deny", 0), ("shadow_deny", 2)] {
        let line =
            format!(r#"tidegate_decisions_total{{limit="shy",decision="{decision}"}} {number}"#);
        assert!(text.contains(&line), "{line}\nis not in\n{text}");
    }
}

#[tokio::test]
async fn labels_contain_no_keys_and_names_are_escaped() {
    let odd = limit("odd \"name\\\n", "1/s");
    let harness = Harness::with(Config { limits: vec![odd], ..Config::default() });
    harness.check(r#"{"rule":"9/s","key":"tell-nobody"}"#).await;
    let text = get(&harness, "/metrics").await.text;
    assert!(!text.contains("tell-nobody") && !text.contains("9/s"));
    assert!(text.contains(r#"tidegate_keys{limit="odd \"name\\\n"} 0"#), "{text}");
}

#[tokio::test]
async fn every_tls_listener_reports_the_expiry_of_its_certificate() {
    let files = Files::new();
    let mut config = Config::default();
    config.server.tls = Some(files.config());
    config.server.grpc = None;
    let text = get(&Harness::with(config), "/metrics").await.text;
    let name = "tidegate_tls_certificate_expiry_timestamp_seconds";
    let mut said: Vec<&str> = text.lines().filter(|line| line.starts_with(name)).collect();
    said.sort_unstable();
    // The first second of 2040.
    let expected = ["http", "resp"].map(|on| format!("{name}{{listener=\"{on}\"}} 2208988800"));
    assert_eq!(said, expected);
    assert!(!get(&harness(), "/metrics").await.text.lines().any(|line| line.starts_with(name)));
}

/// Returns the value of a series.
fn number(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let number = line.unwrap_or_else(|| panic!("{series} is not in\n{text}"));
    number.parse().unwrap()
}

#[tokio::test]
async fn decision_durations_are_counted_for_every_protocol() {
    let harness = harness();
    harness.check(r#"{"limit":"api","key":"alice"}"#).await;
    throttle(&harness, 300).await;
    let text = get(&harness, "/metrics").await.text;
    // The clock stands still.
    for bucket in ["0.000001", "0.0001", "+Inf"] {
        let series = format!("tidegate_decision_duration_seconds_bucket{{le=\"{bucket}\"}}");
        assert_eq!(number(&text, &series), 301.0, "each of a batch is counted");
    }
    assert_eq!(number(&text, "tidegate_decision_duration_seconds_count"), 301.0);
    assert_eq!(number(&text, "tidegate_decision_duration_seconds_sum"), 0.0);
    assert!(!text.contains("tidegate_store_round_trip"), "there is no store");
}

#[tokio::test]
async fn snapshots_and_the_result_of_restoring_are_reported() {
    let harness = harness();
    let text = get(&harness, "/metrics").await.text;
    assert!(!text.contains("tidegate_snapshot"), "it writes none:\n{text}");
    let status = &harness.server.status.snapshot;
    status.begin(RestoreResult::Previous, harness.clock.now());
    harness.clock.advance(Span::from_secs(30));
    status.written(harness.clock.now());
    harness.clock.advance(Span::from_secs(5));
    status.failed("no space left");
    let text = get(&harness, "/metrics").await.text;
    for (series, expected) in [
        (r#"tidegate_snapshots_total{result="ok"}"#, 1.0),
        (r#"tidegate_snapshots_total{result="error"}"#, 1.0),
        ("tidegate_snapshot_age_seconds", 5.0),
        (r#"tidegate_snapshot_restore{result="previous"}"#, 1.0),
        (r#"tidegate_snapshot_restore{result="failed"}"#, 0.0),
    ] {
        assert_eq!(number(&text, series), expected, "{series}");
    }
    let ready = get(&harness, "/readyz?verbose").await;
    assert_eq!(ready.status, 200, "it is no reason not to ask");
    for line in [
        "[!] the snapshot could not be restored at the start; the one before it was",
        "[!] the last snapshot could not be written: no space left; the last successful one, or the start, was 5 s ago",
    ] {
        assert!(ready.text.lines().any(|other| other == line), "{line}\n{}", ready.text);
    }
}

#[tokio::test]
async fn lost_log_lines_are_counted() {
    let harness = harness();
    assert!(!get(&harness, "/metrics").await.text.contains("tidegate_log"), "it does not log");
    let drops = harness.server.status.log.get_or_init(Arc::default);
    (0..3).for_each(|_| drops.add(DropReason::Repeated));
    assert!(!get(&harness, "/readyz?verbose").await.text.contains("lines of the log"));
    (0..2).for_each(|_| drops.add(DropReason::Unwritable));
    let text = get(&harness, "/metrics").await.text;
    assert_eq!(number(&text, r#"tidegate_log_lines_dropped_total{reason="repeated"}"#), 3.0);
    assert_eq!(number(&text, r#"tidegate_log_lines_dropped_total{reason="unwritable"}"#), 2.0);
    let ready = get(&harness, "/readyz?verbose").await.text;
    assert!(ready.contains("[!] 2 lines of the log could not be written\n"), "{ready}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn process_metrics_have_their_standard_names() {
    let text = get(&harness(), "/metrics").await.text;
    let is_within = |series, from, to| {
        let number = number(&text, series);
        assert!((from..to).contains(&number), "{series} {number}");
    };
    is_within("process_resident_memory_bytes", 1e6, 1e11);
    is_within("process_virtual_memory_bytes", 1e6, 1e16);
    is_within("process_cpu_seconds_total", 0.0, 1e6);
    is_within("process_open_fds", 3.0, 1e6);
    is_within("process_max_fds", 3.0, 1e10);
    let file = std::fs::metadata("/proc/self").and_then(|file| file.modified()).unwrap();
    let about = file.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    is_within("process_start_time_seconds", about - 3_600.0, about + 60.0);
}
