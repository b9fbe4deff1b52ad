//! Requests that servers interpret differently: no interpretation is a way around a limit.

use super::{Harness, Reply};
use http::Request;
use serde_json::json;

const CONFIG: &str = r#"
[limits.login]
rule = "1/min"
key = ["constant:all", "path"]
when = { path = "/login" }

[limits.user]
rule = "1/min"
key = "query:user"
when = { host = "query" }

[limits.session]
rule = "1/min"
key = "cookie:sid"
when = { host = "cookie" }
on_missing_key = "deny"

[limits.guest]
rule = "1/min"
key = "query:user"
when = { host = "guest" }
on_missing_key = "allow"

[limits.trial]
rule = "1/min"
when = { "query:plan" = "trial", host = "plan", not = { "cookie:staff" = "yes" } }
"#;

fn harness(server: &str) -> Harness {
    let config = format!("[server]\n{server}\n{CONFIG}");
    Harness::with(crate::config::read(&config, "tidegate.toml").unwrap())
}

/// Returns the request of a proxy that sends these header fields.
async fn ask(harness: &Harness, (from, host, uri): (&str, &str, &str), cookies: &[&str]) -> Reply {
    let mut request = Request::get(format!("/v1/authorize?from={from}"))
        .header("host", "localhost")
        .header(format!("{from}-uri"), uri)
        .header(format!("{from}-method"), "GET")
        .header(format!("{from}-host"), host);
    for cookie in cookies {
        request = request.header("cookie", *cookie);
    }
    harness.ask(request, b"").await
}

#[tokio::test]
async fn a_page_has_one_key_however_its_path_is_written() {
    for from in ["x-original", "x-forwarded"] {
        let harness = harness("");
        for (place, uri) in [
            "/login",
            "/%2flogin",
            "/x%2f..%2flogin",
            "/x%2fy/../login",
            "/x/%2e%2e/LOGIN?a=/b",
            "/x/..;/login",
            "/x\\..\\login;x#/",
            "/%252flogin/",
            "/login%00.png",
        ]
        .iter()
        .enumerate()
        {
            let status = ask(&harness, (from, "site", uri), &[]).await.status;
            assert_eq!(status, if place == 0 { 204 } else { 429 }, "{from} {uri}");
        }
        assert_eq!(ask(&harness, (from, "site", "/x%2flogin"), &[]).await.status, 204, "elsewhere");
    }
}

#[tokio::test]
async fn an_escaped_slash_is_configurable_for_each_family() {
    let harness = harness("escaped_slash = { x-original = \"decode\", x-forwarded = \"keep\" }");
    let page = |from: &'static str, uri: &'static str| {
        let request = Request::get(format!("/v1/explain?from={from}"))
            .header("host", "localhost")
            .header(format!("{from}-uri"), uri)
            .header(format!("{from}-method"), "GET");
        let harness = &harness;
        async move { harness.ask(request, b"").await.json()["path"].clone() }
    };
    assert_eq!(page("x-original", "/x%2F..%2FLogin").await, json!("/login"));
    assert_eq!(page("x-forwarded", "/x%2F..%2FLogin").await, json!("/x%2f..%2flogin"));
    assert_eq!(page("x-original", "/login").await, json!(null), "as it was sent");
    let described = harness.post("/v1/explain", r#"{"path": "/x%2F..%2Flogin"}"#).await.json();
    let path = described["path"].as_str().unwrap();
    assert_eq!(path, "ambiguous: servers differ about the page that it means");
}

/// nginx and others end the URI at a raw `#`, and find no query behind it.
#[tokio::test]
async fn a_query_after_a_fragment_is_no_key_and_satisfies_no_condition() {
    let harness = harness("");
    let status =
        async |host: &str, uri: &str| ask(&harness, ("x-original", host, uri), &[]).await.status;
    assert_eq!(status("query", "/").await, 204, "anonymous requests share one key");
    for uri in ["/#?user=ann", "/a#?user=bob", "/#/b?user=eve"] {
        assert_eq!(status("query", uri).await, 429, "{uri}");
    }
    assert_eq!(status("query", "/%23?user=ann").await, 204, "an escaped one is part of the path");
}

#[tokio::test]
async fn a_cookie_with_a_blank_beyond_ascii_at_its_ends_is_no_key() {
    let harness = harness("");
    let status =
        async |cookie: &str| ask(&harness, ("x-original", "cookie", "/"), &[cookie]).await.status;
    assert_eq!(status("sid=ann").await, 204);
    for cookie in ["sid=ann\u{a0}", "sid=\u{85}ann", "sid=ann\u{3000}", "sid=bob; \u{a0}sid=ann"] {
        assert_eq!(status(cookie).await, 429, "{cookie:?}");
    }
}

#[tokio::test]
async fn a_repeated_parameter_is_no_key() {
    let harness = harness("");
    let status = async |host: &str, query: &str| {
        let uri = format!("/?{query}");
        ask(&harness, ("x-original", host, &uri), &[]).await.status
    };
    assert_eq!(status("query", "user=ann").await, 204);
    assert_eq!(status("query", "us%65r=%61nn").await, 429, "the same key");
    assert_eq!(status("query", "user=ann&user=1").await, 204, "anonymous requests share one key");
    for twice in ["user=2&user=ann", "user=ann;user=3", "user[]=4", "USER=5", ""] {
        assert_eq!(status("query", twice).await, 429, "{twice}");
    }
    assert_eq!(status("guest", "user=ann").await, 204);
    assert_eq!(status("guest", "user=ann").await, 429);
    assert_eq!(status("guest", "user=ann&user=1").await, 204, "as it is configured");
}

#[tokio::test]
async fn a_repeated_cookie_is_no_key() {
    let harness = harness("");
    let status = async |cookies: &[&str]| {
        ask(&harness, ("x-forwarded", "cookie", "/"), cookies).await.status
    };
    assert_eq!(status(&["sid=7"]).await, 204);
    for same in [&["a=1; sid=7"][..], &["a=1", "sid=\"7\""], &["sid=%37"]] {
        assert_eq!(status(same).await, 429, "{same:?}");
    }
    for twice in
        [&["sid=8; sid=9"][..], &["sid=8", "sid=9"], &["sid=8, sid=9"], &["a=\"; sid=8\"; sid=9"]]
    {
        let reply = ask(&harness, ("x-forwarded", "cookie", "/"), twice).await;
        assert_eq!(reply.status, 429, "{twice:?}");
        assert!(reply.detail().contains("counts by `cookie:sid`"), "{}", reply.detail());
    }
    assert_eq!(status(&["sid=8"]).await, 204, "the denied requests were not charged");
}

#[tokio::test]
async fn a_condition_matches_each_value() {
    for (query, cookies, counts) in [
        ("plan=trial", &[][..], true),
        ("plan=paid&plan=trial", &[], true),
        ("plan=trial&Plan=paid", &[], true),
        ("plan=paid", &[], false),
        ("plan=trial", &["staff=yes"], false),
        ("plan=trial", &["staff=yes; staff=no"], true),
        ("plan=trial", &["staff=no", "staff=yes"], true),
        ("plan=trial", &["STAFF=yes"], true),
    ] {
        let harness = harness("");
        let uri = format!("/?{query}");
        let mut last = 0;
        for _ in 0..2 {
            last = ask(&harness, ("x-original", "plan", &uri), cookies).await.status;
        }
        assert_eq!(last, if counts { 429 } else { 204 }, "{query} {cookies:?}");
    }
}
