//! Tests of `/livez` and `/readyz`.

use super::{get, harness};
use std::sync::atomic::Ordering;

#[tokio::test]
async fn a_server_is_live_and_ready_until_it_drains() {
    let harness = harness();
    assert_eq!(get(&harness, "/livez").await.text, "ok\n");
    let ready = get(&harness, "/readyz").await;
    assert_eq!((ready.status, &*ready.text), (200, "ok\n"));

    harness.server.status.drain.begin();
    assert_eq!(get(&harness, "/livez").await.status, 200);
    let ready = get(&harness, "/readyz").await;
    assert_eq!((ready.status, &*ready.text), (503, "draining\n"));
    assert!(get(&harness, "/readyz?verbose").await.text.starts_with("[-] draining\n"));
}

#[tokio::test]
async fn a_failed_reload_is_reported_and_the_server_stays_ready() {
    let harness = harness();
    harness.server.status.is_config_stale.store(true, Ordering::Relaxed);
    let ready = get(&harness, "/readyz?verbose").await;
    assert_eq!(ready.status, 200);
    assert!(ready.text.contains("[!] the last reload failed"));
}
