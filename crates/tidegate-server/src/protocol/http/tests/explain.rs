//! Tests of `/v1/explain`.

use super::{Harness, limit};
use crate::config::Config;
use crate::matching::{KeyPart, V4_BITS, V6_BITS};
use http::Request;
use tidegate_http::ProxyHeader;

/// Returns a server with a limit by address and trusted proxies in 10.0.0.0/8.
fn harness() -> Harness {
    let mut login = limit("login", "5/min");
    login.key = vec![KeyPart::Ip { v4_bits: V4_BITS, v6_bits: V6_BITS }];
    let mut config = Config { limits: vec![login], ..Config::default() };
    config.server.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
    Harness::with(config)
}

/// Returns a server with a trusted proxy on this machine, which sends that header.
fn harness_with(header: ProxyHeader) -> Harness {
    let mut config = (*harness().server.config()).clone();
    config.server.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
    config.server.proxy_header = header;
    Harness::with(config)
}

#[tokio::test]
async fn a_described_request_is_explained_and_not_charged() {
    let harness = harness();
    let asked = r#"{"method": "POST", "path": "/login?a=1", "ip": "192.0.2.7", "cost": 2}"#;
    for _ in 0..5 {
        let told = harness.post("/v1/explain", asked).await.json();
        assert_eq!(told["limits"][0]["key"], "192.0.2.7");
        assert_eq!(told["limits"][0]["now"]["remaining"], 3);
        assert_eq!(told.get("hint"), None);
    }
    assert_eq!(harness.post("/v1/explain", "{}").await.json()["verdict"], "allow");
}

#[tokio::test]
async fn a_trusted_proxy_is_believed_and_another_gets_a_hint() {
    let harness = harness();
    let asked =
        |ip: &str| format!(r#"{{"ip": "{ip}", "headers": {{"x-forwarded-for": "192.0.2.7"}}}}"#);
    let told = harness.post("/v1/explain", asked("10.1.2.3")).await.json();
    assert_eq!((&told["limits"][0]["key"], told.get("hint")), (&"192.0.2.7".into(), None));
    let told = harness.post("/v1/explain", asked("172.16.0.1")).await.json();
    assert_eq!(told["limits"][0]["key"], "172.16.0.1");
    let hint = "`x-forwarded-for` is ignored because 172.16.0.1 is not a trusted proxy: if it is your proxy, add it to \
                `trusted_proxies`";
    assert_eq!(told["hint"], hint);
    let own = Request::get("/v1/explain").header("host", "localhost").header("forwarded", "for=a");
    let told = harness.ask(own, b"").await.json();
    assert!(told["hint"].as_str().unwrap().starts_with("`forwarded` is ignored because 127.0.0.1"));
}

#[tokio::test]
async fn of_two_headers_the_configured_one_is_believed() {
    const BOTH: [(&str, &str); 2] =
        [("x-forwarded-for", "192.0.2.1"), ("forwarded", "for=192.0.2.2")];
    for (header, key) in [
        (ProxyHeader::Either, "192.0.2.1"),
        (ProxyHeader::XForwardedFor, "192.0.2.1"),
        (ProxyHeader::Forwarded, "192.0.2.2"),
    ] {
        let harness = harness_with(header);
        let asked = BOTH.map(|(name, value)| format!(r#""{name}": "{value}""#)).join(", ");
        let asked = format!(r#"{{"ip": "127.0.0.1", "headers": {{{asked}}}}}"#);
        let told = harness.post("/v1/explain", asked).await.json();
        assert_eq!(
            (&told["limits"][0]["key"], told.get("hint")),
            (&key.into(), None),
            "{header:?}"
        );
        let mut own = Request::get("/v1/explain").header("host", "localhost");
        for (name, value) in BOTH {
            own = own.header(name, value);
        }
        let told = harness.ask(own, b"").await.json();
        assert_eq!(told["limits"][0]["key"], key, "{header:?}");
    }
    for (header, (name, value)) in
        [(ProxyHeader::Forwarded, BOTH[0]), (ProxyHeader::XForwardedFor, BOTH[1])]
    {
        let own = Request::get("/v1/explain").header("host", "localhost").header(name, value);
        let told = harness_with(header).ask(own, b"").await.json();
        assert_eq!(
            told["limits"][0]["key"], "127.0.0.1",
            "the other one alone is not believed either"
        );
        let hint = format!(
            "`{name}` is ignored because `proxy_header` names another header: if 127.0.0.1 sets `{name}`, write it there"
        );
        assert_eq!(told["hint"], hint);
    }
}

#[tokio::test]
async fn a_repeated_header_is_no_key_and_conditions_match_each_value() {
    let config = r#"
        [limits.user]
        rule = "5/min"
        key = "header:x-user"
        [limits.robots]
        rule = "1/min"
        when = { "header:user-agent" = "*bot" }
    "#;
    let harness = Harness::with(crate::config::read(config, "t.toml").unwrap());
    let said = |headers: &str| format!(r#"{{"headers": {{{headers}}}}}"#);
    let once = harness.post("/v1/explain", said(r#""x-user": "ann""#)).await.json();
    assert_eq!(once["limits"][0]["key"], "ann");
    let alone = harness.post("/v1/explain", said(r#""x-user": ["ann"]"#)).await.json();
    assert_eq!(alone["limits"][0]["key"], "ann");
    let twice = said(r#""x-user": ["ann", "bob"], "user-agent": ["browser", "robot"]"#);
    let twice = harness.post("/v1/explain", twice).await.json();
    assert_eq!(twice["limits"][0]["key"], "", "as it is decided");
    assert_eq!(twice["limits"][1]["counts"], true);
}

#[tokio::test]
async fn each_proxy_on_the_way_may_add_an_address() {
    let asked = r#"{"ip": "10.1.2.3", "headers": {"x-forwarded-for": ["192.0.2.7", "10.9.9.9"]}}"#;
    let told = harness().post("/v1/explain", asked).await.json();
    assert_eq!(told["limits"][0]["key"], "192.0.2.7");
}

const EDGE: &str = r#"
    [limits.user]
    rule = "2/min fixed"
    domain = "edge"
    descriptor = ["user"]
    [limits.paths]
    rule = "9/min fixed"
    domain = "edge"
    descriptor = ["user", "path"]
    [limits.robot]
    rule = "1/min fixed"
    domain = "edge"
    descriptor = ["user=robot"]
    replaces = ["user"]
"#;

#[tokio::test]
async fn an_envoy_request_is_explained_by_descriptor_and_not_charged() {
    let harness = Harness::with(crate::config::read(EDGE, "t.toml").unwrap());
    let asked =
        r#"{"domain": "edge", "descriptors": [["user=ann", "path=/x"], ["user=ann"]], "cost": 2}"#;
    for _ in 0..3 {
        let told = harness.post("/v1/explain", asked).await.json();
        assert_eq!((&told["verdict"], &told["decided_by"]), (&"allow".into(), &"user".into()));
        assert_eq!(told["limits"], serde_json::json!([]));
        let [paths, user] = [&told["descriptors"][0], &told["descriptors"][1]];
        assert_eq!(paths["descriptor"], "user=ann, path=/x");
        assert_eq!(paths["why"], "user=ann matches user; path=/x matches path");
        assert_eq!(
            (&paths["limit"]["limit"], &paths["limit"]["key"]),
            (&"paths".into(), &"ann|/x".into())
        );
        assert_eq!(user["limit"]["now"]["remaining"], 0, "two of two");
    }
}

#[tokio::test]
async fn an_explanation_names_what_hides_or_replaces_a_limit() {
    let harness = Harness::with(crate::config::read(EDGE, "t.toml").unwrap());
    let asked = r#"{"domain": "edge", "descriptors":
        [["user=robot"], ["user=ann"], ["user=robot", "path=/x"], ["tenant=a"]]}"#;
    let told = harness.post("/v1/explain", asked).await.json();
    assert_eq!(told["decided_by"], "robot");
    let descriptors = &told["descriptors"];
    assert_eq!(descriptors[0]["why"], "user=robot matches user=robot, which hides user");
    assert_eq!(descriptors[1]["limit"]["counts"], false);
    assert_eq!(descriptors[1]["limit"]["why"], "robot replaces it");
    let hidden = "user=robot matches user=robot, which hides user; no limit has path=/x at depth 2";
    assert_eq!(
        (&descriptors[2]["why"], &descriptors[2]["limit"]),
        (&hidden.into(), &serde_json::Value::Null)
    );
    assert_eq!(descriptors[3]["why"], "no limit has tenant=a at depth 1");
    let elsewhere = r#"{"domain": "else", "descriptors": [["user=ann"]]}"#;
    let told = harness.post("/v1/explain", elsewhere).await.json();
    assert_eq!(told["descriptors"][0]["why"], "no limit has this domain");
    assert_eq!(
        (&told["verdict"], &told["decided_by"]),
        (&"allow".into(), &serde_json::Value::Null)
    );
}

#[tokio::test]
async fn a_body_that_describes_no_request_is_refused() {
    let harness = harness();
    for body in [
        "",
        "[]",
        r#"{"method": "get"}"#,
        r#"{"method": ""}"#,
        r#"{"path": "login"}"#,
        r#"{"ip": "localhost"}"#,
        r#"{"headers": {"X-User": "ann"}}"#,
        r#"{"headers": {"": "ann"}}"#,
        r#"{"headers": {"x-user": 7}}"#,
        r#"{"headers": {"x-user": ["ann", 7]}}"#,
        r#"{"cost": -1}"#,
        r#"{"domain": "edge"}"#,
        r#"{"domain": "", "descriptors": [["user=ann"]]}"#,
        r#"{"descriptors": [["user=ann"]]}"#,
        r#"{"domain": "edge", "descriptors": [[]]}"#,
        r#"{"domain": "edge", "descriptors": [["user"]]}"#,
        r#"{"domain": "edge", "descriptors": [["user=ann"]], "path": "/login"}"#,
        r#"{"uri": "/"}"#,
    ] {
        assert_eq!(harness.post("/v1/explain", body).await.status, 400, "{body}");
    }
    let put = Request::put("/v1/explain").header("host", "localhost");
    let reply = harness.ask(put, b"").await;
    assert_eq!((reply.status, reply.field("allow")), (405, Some("GET, POST")));
}

#[tokio::test]
async fn a_repeated_value_is_named_as_the_reason() {
    let config = r#"
        [limits.counted]
        rule = "9/min"
        key = "query:user"
        on_missing_key = "allow"
        [limits.page]
        rule = "9/min"
        key = "path"
        on_missing_key = "allow"
        [limits.refused]
        rule = "9/min"
        key = "query:user"
        on_missing_key = "deny"
    "#;
    let harness = Harness::with(crate::config::read(config, "t.toml").unwrap());
    let body = r#"{"method": "GET", "path": "/x%2f..%2flogin?user=ann&user="}"#;
    let explained = harness.post("/v1/explain", body).await.json();
    let why = |place: usize| explained["limits"][place]["why"].as_str().unwrap().to_owned();
    assert_eq!(
        [why(0), why(1), why(2)],
        [
            "it counts every request; query:user comes twice, so it is counted on the shared key",
            "it counts every request; path is ambiguous, so it is counted on the shared key",
            "query:user comes twice, and the request is refused",
        ]
    );
    assert_eq!(explained["verdict"], "deny");
    let refused = harness.ask(
        Request::get("/v1/authorize?from=x-original")
            .header("host", "localhost")
            .header("x-original-method", "GET")
            .header("x-original-uri", "/?user=ann&user="),
        b"",
    );
    let refused = refused.await;
    assert_eq!(
        refused.detail(),
        "the limit `refused` counts by `query:user`, which comes twice in the request"
    );
}

#[tokio::test]
async fn the_proxys_token_is_neither_a_key_nor_shown() {
    let config = r#"
        [server.auth]
        tokens = ["s3cret", "other"]
        [limits.client]
        rule = "1/min"
        key = "header:x-api-key"
        [limits.session]
        rule = "9/min"
        key = "cookie:sid"
        when = { not = { "header:x-api-key" = "s3cret" } }
    "#;
    let harness = Harness::with(crate::config::read(config, "t.toml").unwrap());
    let ask = |fields: &[(&str, &str)]| {
        let mut request =
            Request::get("/v1/explain").header("host", "localhost").header("cookie", "sid=c00kie");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request
    };
    let by_api_key = harness.ask(ask(&[("x-api-key", "s3cret")]), b"").await;
    assert_eq!(
        by_api_key.json()["limits"][0]["key"],
        "",
        "it has none of its own: {}",
        by_api_key.text
    );
    let both = [("authorization", "Bearer other"), ("x-api-key", "cl1ent")];
    let by_bearer = harness.ask(ask(&both), b"").await;
    let key = by_bearer.json()["limits"][0]["key"].as_str().unwrap().to_owned();
    assert!(key.starts_with("[redacted "), "its own is shown as a digest: {key}");
    for reply in [by_api_key, by_bearer] {
        assert_eq!(reply.status, 200);
        for secret in ["s3cret", "other", "cl1ent", "c00kie"] {
            assert!(!reply.text.contains(secret), "{secret} is in {}", reply.text);
        }
    }
}
