//! What is deployed beside the server names only metrics that there are.

use super::{bench, get};
use std::collections::BTreeSet;

const DASHBOARD: &str = include_str!("../../../../../deploy/grafana/dashboard.json");
const ALERTS: &str = include_str!("../../../../../deploy/prometheus/alerts.yml");

/// Every word in it that begins as our metrics do.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("tidegate_")).collect()
}

#[tokio::test]
async fn every_metric_of_the_dashboard_and_the_alerts_exists() {
    let metrics = get(&bench(), "/metrics").await.text;
    let samples = metrics.lines().filter(|line| !line.starts_with('#'));
    let known: BTreeSet<&str> =
        samples.map(|line| line.split(['{', ' ']).next().unwrap()).collect();
    for (file, text) in [("dashboard.json", DASHBOARD), ("alerts.yml", ALERTS)] {
        let named = named(text);
        assert!(!named.is_empty(), "{file} names none");
        let unknown: Vec<&&str> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}");
    }
}

#[test]
fn the_dashboard_is_json_and_all_its_panels_have_a_title() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(panel["title"].as_str().is_some_and(|title| !title.is_empty()), "{panel}");
    }
}
