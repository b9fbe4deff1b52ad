//! Tests of access control.

use super::super::ROUTES;
use super::{TOKEN, ask, harness};
use crate::config::Config;
use crate::protocol::http::ADMIN_PATHS;
use crate::protocol::http::tests::Harness;
use http::request::Builder;
use http::{Request, Version};

fn request(method: &str, path: &str) -> Builder {
    Request::builder().method(method).uri(path).header("host", "localhost:9091")
}

#[tokio::test]
async fn all_paths_but_health_and_the_dashboard_need_the_token() {
    let harness = harness();
    for (path, method, _) in ROUTES {
        let is_open =
            matches!(*path, "/livez" | "/readyz" | "/" | "/dashboard.css" | "/dashboard.js");
        let without = ask(&harness, request(method.as_str(), path)).await;
        assert_eq!(without.status == 401, !is_open, "{path}");
        let wrong = request(method.as_str(), path).header("authorization", "Bearer other");
        assert_eq!(ask(&harness, wrong).await.status == 401, !is_open, "{path}");
        let with = request(method.as_str(), path).header("authorization", TOKEN);
        assert_ne!(ask(&harness, with).await.status, 401, "{path}");
    }
}

#[test]
fn the_http_listener_knows_every_path_of_the_admin_listener() {
    // Both listeners have a page at `/`.
    let paths = ROUTES.iter().map(|(path, ..)| *path).filter(|path| *path != "/");
    assert_eq!(paths.collect::<Vec<_>>(), ADMIN_PATHS);
}

#[tokio::test]
async fn without_a_token_only_loopback_host_names_are_accepted() {
    let harness = Harness::new();
    let limits = |host: &str| Request::get("/v1/limits").header("host", host);
    for host in
        ["localhost", "LOCALHOST:9091", "127.0.0.1:9091", "[::1]:9091", "[::1]", "127.0.0.1"]
    {
        assert_eq!(ask(&harness, limits(host)).await.status, 200, "{host}");
    }
    let strangers = [
        "evil.example",
        "evil.example:9091",
        "localhost.evil.example",
        "192.0.2.1:9091",
        "[::2]:9091",
    ];
    for host in strangers {
        assert_eq!(ask(&harness, limits(host)).await.status, 403, "{host}");
    }
    assert_eq!(ask(&harness, Request::get("/v1/limits")).await.status, 400, "no host at all");
}

#[tokio::test]
async fn only_a_health_probe_over_http_1_0_needs_no_host() {
    let harness = Harness::new();
    let get = |path: &str, version| Request::get(path).version(version);
    for path in ["/livez", "/readyz"] {
        assert_eq!(ask(&harness, get(path, Version::HTTP_10)).await.status, 200, "{path}");
        assert_eq!(ask(&harness, get(path, Version::HTTP_11)).await.status, 400, "{path}");
        let two = get(path, Version::HTTP_10).header("host", "a").header("host", "b");
        assert_eq!(ask(&harness, two).await.status, 400, "{path}");
    }
    for path in ["/metrics", "/v1/limits", "/"] {
        assert_eq!(ask(&harness, get(path, Version::HTTP_10)).await.status, 400, "{path}");
    }
}

#[tokio::test]
async fn without_a_token_a_listener_beyond_loopback_refuses_all_requests() {
    let mut config = Config::default();
    config.server.admin = Some("0.0.0.0:9091".parse().unwrap());
    let harness = Harness::with(config);
    assert_eq!(ask(&harness, request("GET", "/metrics")).await.status, 403);
    assert_eq!(ask(&harness, request("GET", "/")).await.status, 403);
    assert_eq!(ask(&harness, request("GET", "/livez")).await.status, 200);
}

#[tokio::test]
async fn a_page_of_another_site_can_change_nothing() {
    let harness = harness();
    let reload = || request("POST", "/v1/reload").header("authorization", TOKEN);
    let strange = [
        reload().header("origin", "http://evil.example"),
        reload().header("origin", "null"),
        reload().header("sec-fetch-site", "cross-site"),
        reload().header("sec-fetch-site", "same-site"),
    ];
    for request in strange {
        assert_eq!(ask(&harness, request).await.status, 403);
    }
    let own =
        reload().header("origin", "http://localhost:9091").header("sec-fetch-site", "same-origin");
    let reply = ask(&harness, own).await;
    assert_eq!(reply.status, 409);
    assert!(reply.detail().contains("started without one"));
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused() {
    let harness = harness();
    let reply = ask(&harness, request("GET", "/metric")).await;
    assert_eq!(reply.status, 404);
    assert!(reply.detail().ends_with("did you mean /metrics?"), "{}", reply.detail());
    let reply = ask(&harness, request("GET", "/v1/reload")).await;
    assert_eq!((reply.status, reply.field("allow")), (405, Some("POST")));
}

#[tokio::test]
async fn the_dashboard_allows_no_foreign_content_and_no_frame() {
    let harness = harness();
    let page = ask(&harness, request("GET", "/")).await;
    let policy = page.field("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"));
    assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
    assert_eq!(page.field("x-frame-options"), Some("DENY"));
    assert!(!page.text.contains("<style") && !page.text.contains("onclick"));
    assert!(!page.text.contains("http://") && !page.text.contains("https://"));
    let script = ask(&harness, request("GET", "/dashboard.js")).await.text;
    assert!(!script.contains("innerHTML") && !script.contains("insertAdjacentHTML"));
}
