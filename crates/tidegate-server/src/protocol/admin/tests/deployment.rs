//! The Grafana dashboard and the alerts name only existing metrics, and there are as many series as the guide says.

use super::{get, harness};
use crate::clock::ServerClock;
use crate::config::Config;
use crate::protocol::http::tests::Harness;
use crate::server::Server;
use crate::server::status::RestoreResult;
use crate::tls::tests::Files;
use std::collections::BTreeSet;
use std::sync::Arc;
use tidegate::Clock as _;
use tidegate_redis::{RedisStore, Settings};

const DASHBOARD: &str = include_str!("../../../../../../deploy/grafana/dashboard.json");
const ALERTS: &str = include_str!("../../../../../../deploy/prometheus/alerts.yml");

/// Returns every word that begins like a metric.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("tidegate_") || word.starts_with("process_")).collect()
}

/// Returns the metrics of a server that has all of them: with TLS, a log, snapshots, and limits in a Redis that does not answer.
async fn metrics() -> String {
    let Harness { server, clock } = harness();
    let mut config = Config::clone(&server.config());
    config.server.tls = Some(Files::new().config());
    config.server.admin_tls = Some(Files::new().config());
    let address = "redis://127.0.0.1:1".parse().unwrap();
    let redis = RedisStore::connect_with(&address, Settings::default()).await;
    let server = Server::shared(config, None, ServerClock::Manual(clock.clone()), redis);
    server.status.log.get_or_init(Arc::default);
    server.status.snapshot.begin(RestoreResult::Ok, clock.now());
    server.engine.find("5/h").expect("the table of ad-hoc rules is empty");
    get(&Harness { server, clock }, "/metrics").await.text
}

/// Returns the names of metrics.
fn names(metrics: &str) -> BTreeSet<&str> {
    let samples = metrics.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.split(['{', ' ']).next().unwrap()).collect()
}

#[tokio::test]
async fn every_metric_of_the_dashboard_and_the_alerts_exists() {
    let metrics = metrics().await;
    let known = names(&metrics);
    for (file, text) in [("dashboard.json", DASHBOARD), ("alerts.yml", ALERTS)] {
        let named = named(text);
        assert!(!named.is_empty(), "{file} names none");
        let unknown: Vec<&&str> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}");
    }
}

/// Returns the number of series with this label, or of those without a label of this name.
fn series(metrics: &str, limit: Option<&str>) -> usize {
    let samples = metrics.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let counts = |line: &&str| match limit {
        Some(limit) => line.contains(&format!("{{limit=\"{limit}\"")),
        None => !line.contains("{limit="),
    };
    samples.filter(counts).count()
}

#[tokio::test]
async fn there_are_as_many_series_as_the_guide_says() {
    const GUIDE: &str = include_str!("../../../../../../docs/guide/operations.md");
    let guide = GUIDE.split_whitespace().collect::<Vec<_>>().join(" ");
    let says = "There are eight series for each limit and for each of these two labels, seven more for each with a Redis store, and \
                at most 83 others.";
    assert!(guide.contains(says), "the numbers below are those of the guide");
    let in_memory = get(&harness(), "/metrics").await.text;
    for limit in ["api", "*", "CL.THROTTLE"] {
        assert_eq!(series(&in_memory, Some(limit)), 8, "{limit} in\n{in_memory}");
    }
    let all = metrics().await;
    for limit in ["api", "*", "CL.THROTTLE"] {
        assert_eq!(series(&all, Some(limit)), 8 + 7, "{limit} in\n{all}");
    }
    assert_eq!(series(&all, None), 83, "{all}");
}

#[tokio::test]
async fn the_dashboard_shows_every_metric() {
    let metrics = metrics().await;
    let shown = named(DASHBOARD);
    let hidden: Vec<&str> =
        names(&metrics).into_iter().filter(|name| !shown.contains(name)).collect();
    assert_eq!(hidden, [""; 0]);
}

#[test]
fn the_dashboard_is_json_and_all_its_panels_have_a_title_and_a_place() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut places = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(panel["title"].as_str().is_some_and(|title| !title.is_empty()), "{panel}");
        assert!(places.insert(panel["gridPos"].to_string()), "two panels in one place: {panel}");
    }
}
