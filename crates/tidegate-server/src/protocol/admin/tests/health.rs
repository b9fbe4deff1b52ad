//! Whether it lives, and whether it wants to be asked.

use super::{bench, get};
use std::sync::atomic::Ordering;

#[tokio::test]
async fn a_server_lives_and_is_ready_until_it_drains() {
    let bench = bench();
    assert_eq!(get(&bench, "/livez").await.text, "ok\n");
    let ready = get(&bench, "/readyz").await;
    assert_eq!((ready.status, &*ready.text), (200, "ok\n"));

    bench.server.status.drain.begin();
    assert_eq!(get(&bench, "/livez").await.status, 200);
    let ready = get(&bench, "/readyz").await;
    assert_eq!((ready.status, &*ready.text), (503, "draining\n"));
    assert!(get(&bench, "/readyz?verbose").await.text.starts_with("[-] draining\n"));
}

#[tokio::test]
async fn an_old_configuration_is_told_and_is_no_reason_not_to_ask() {
    let bench = bench();
    bench.server.status.is_config_stale.store(true, Ordering::Relaxed);
    let ready = get(&bench, "/readyz?verbose").await;
    assert_eq!(ready.status, 200);
    assert!(ready.text.contains("[!] the configuration could not be read again"));
}
