//! `/v1/explain` about a request that is described, and about the one that asks.

use super::{Bench, limit};
use crate::config::Config;
use crate::matching::{KeyPart, V4_BITS, V6_BITS};
use http::Request;

/// A limit by address, and a proxy in 10.0.0.0/8 that is trusted.
fn bench() -> Bench {
    let mut login = limit("login", "5/min");
    login.key = vec![KeyPart::Ip { v4_bits: V4_BITS, v6_bits: V6_BITS }];
    let mut config = Config { limits: vec![login], ..Config::default() };
    config.server.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
    Bench::with(config)
}

#[tokio::test]
async fn a_described_request_is_explained_and_takes_nothing() {
    let bench = bench();
    let asked = r#"{"method": "POST", "path": "/login?a=1", "ip": "192.0.2.7", "cost": 2}"#;
    for _ in 0..5 {
        let told = bench.post("/v1/explain", asked).await.json();
        assert_eq!(told["limits"][0]["key"], "192.0.2.7");
        assert_eq!(told["limits"][0]["now"]["remaining"], 3);
        assert_eq!(told.get("hint"), None);
    }
    assert_eq!(bench.post("/v1/explain", "{}").await.json()["verdict"], "allow");
}

#[tokio::test]
async fn a_trusted_proxy_is_believed_and_another_is_asked_about() {
    let bench = bench();
    let asked =
        |ip: &str| format!(r#"{{"ip": "{ip}", "headers": {{"x-forwarded-for": "192.0.2.7"}}}}"#);
    let told = bench.post("/v1/explain", asked("10.1.2.3")).await.json();
    assert_eq!((&told["limits"][0]["key"], told.get("hint")), (&"192.0.2.7".into(), None));
    let told = bench.post("/v1/explain", asked("172.16.0.1")).await.json();
    assert_eq!(told["limits"][0]["key"], "172.16.0.1");
    let hint = "`x-forwarded-for` is not believed, since 172.16.0.1 is no trusted proxy: if it is one of yours, add it to \
                `trusted_proxies`";
    assert_eq!(told["hint"], hint);
    let own = Request::get("/v1/explain").header("host", "localhost").header("forwarded", "for=a");
    let told = bench.ask(own, b"").await.json();
    assert!(
        told["hint"].as_str().unwrap().starts_with("`forwarded` is not believed, since 127.0.0.1")
    );
}

#[tokio::test]
async fn what_is_no_request_is_refused() {
    let bench = bench();
    for body in [
        "",
        "[]",
        r#"{"method": "get"}"#,
        r#"{"method": ""}"#,
        r#"{"path": "login"}"#,
        r#"{"ip": "localhost"}"#,
        r#"{"headers": {"X-User": "ann"}}"#,
        r#"{"headers": {"": "ann"}}"#,
        r#"{"cost": -1}"#,
        r#"{"uri": "/"}"#,
    ] {
        assert_eq!(bench.post("/v1/explain", body).await.status, 400, "{body}");
    }
    let put = Request::put("/v1/explain").header("host", "localhost");
    let reply = bench.ask(put, b"").await;
    assert_eq!((reply.status, reply.field("allow")), (405, Some("GET, POST")));
}
