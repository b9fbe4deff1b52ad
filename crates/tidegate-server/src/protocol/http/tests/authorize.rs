//! Tests of `/v1/authorize`.

use super::{Harness, Reply};
use http::Request;
use http::request::Builder;
use serde_json::json;
use std::sync::Arc;
use tidegate::Span;

const CONFIG: &str = r#"
[server]
trusted_proxies = ["127.0.0.1"]

[limits.address]
rule = "2/min"
key = "ip"
when = { path = "/login*", method = "POST" }

[limits.user]
rule = "3/min"
key = "header:x-user"
on_missing_key = "deny"
when = { host = "api.example.org" }

[limits.shop]
rule = "1/min"
when = { path = "/shop" }
fallback = { status = 202, content_type = "text/html", body = "<p>Please wait.</p>" }

[limits.moved]
rule = "1/min"
when = { path = "/moved" }
fallback = { status = 307, body = "elsewhere" }

[limits.closed]
rule = "1/min"
when = { path = "/closed" }
fallback = { status = 503, body = "closed" }

[limits.slow]
rule = "10/s queue capacity 5"
when = { path = "/slow" }
"#;

fn harness() -> Harness {
    Harness::with(crate::config::read(CONFIG, "tidegate.toml").unwrap())
}

/// Returns nginx's request for a client with this address.
fn nginx(query: &str, method: &str, uri: &str, client: &str) -> Builder {
    Request::get(format!("/v1/authorize{query}"))
        .header("host", "127.0.0.1:8080")
        .header("x-original-method", method)
        .header("x-original-uri", uri)
        .header("x-forwarded-for", client)
}

/// Returns the request of Traefik and Caddy.
fn traefik(method: &str, host: &str, uri: &str) -> Builder {
    Request::get("/v1/authorize")
        .header("host", "127.0.0.1:8080")
        .header("x-forwarded-method", method)
        .header("x-forwarded-host", host)
        .header("x-forwarded-uri", uri)
        .header("x-forwarded-for", "192.0.2.1")
}

async fn ask(harness: &Harness, request: Builder) -> Reply {
    harness.ask(request, b"").await
}

#[tokio::test]
async fn a_request_behind_nginx_is_charged_to_the_limits_that_count_it() {
    let harness = harness();
    let login = |client| nginx("", "POST", "/login?next=/", client);
    for _ in 0..2 {
        let reply = ask(&harness, login("192.0.2.1")).await;
        assert_eq!((reply.status, &*reply.text), (204, ""));
        assert_eq!(reply.field("ratelimit-policy"), Some(r#""address";q=2;w=60"#));
        assert_eq!(reply.field("content-type"), None);
    }
    let denied = ask(&harness, login("192.0.2.1")).await;
    assert_eq!((denied.status, denied.field("retry-after")), (429, Some("30")));
    assert_eq!(denied.json()["violated-policies"], json!(["address"]));
    assert_eq!(ask(&harness, login("192.0.2.2")).await.status, 204, "another client");
    let get = nginx("", "GET", "/login", "192.0.2.1");
    let reply = ask(&harness, get).await;
    assert_eq!((reply.status, reply.field("ratelimit")), (204, None), "no limit counts it");
}

#[tokio::test]
async fn a_denial_has_the_status_that_the_proxy_requests() {
    let harness = harness();
    let login = || nginx("?deny=403", "POST", "/login", "192.0.2.1");
    for _ in 0..2 {
        ask(&harness, login()).await;
    }
    let denied = ask(&harness, login()).await;
    assert_eq!((denied.status, denied.field("retry-after")), (403, Some("30")));
    assert_eq!(denied.json()["status"], 403);
}

#[tokio::test]
async fn a_request_behind_traefik_or_caddy_is_charged_too() {
    let harness = harness();
    let request = || traefik("GET", "api.example.org:443", "/items");
    for left in ["2", "1", "0"] {
        let reply = ask(&harness, request().header("x-user", "alice")).await;
        assert_eq!(reply.status, 204);
        assert!(reply.field("ratelimit").unwrap().contains(&format!(";r={left};")));
    }
    assert_eq!(ask(&harness, request().header("x-user", "alice")).await.status, 429);
    let keyless = ask(&harness, request()).await;
    assert_eq!(keyless.status, 429, "a request without a key is denied if the limit says so");
    assert!(keyless.detail().contains("header:x-user"), "{}", keyless.detail());
}

// A proxy takes 2xx as permission, so the fallback's own status would admit denied requests.
#[tokio::test]
async fn a_denied_request_gets_the_fallback_with_a_status_that_denies() {
    let harness = harness();
    let cases = [
        ("/shop", "", 429, "<p>Please wait.</p>"),
        ("/shop", "?deny=403", 403, "<p>Please wait.</p>"),
        ("/moved", "", 429, "elsewhere"),
        ("/moved", "?deny=401", 401, "elsewhere"),
        ("/closed", "", 503, "closed"),
        ("/closed", "?deny=403", 403, "closed"),
    ];
    for path in ["/shop", "/moved", "/closed"] {
        assert_eq!(ask(&harness, nginx("", "GET", path, "192.0.2.1")).await.status, 204, "{path}");
    }
    for (path, query, status, body) in cases {
        let denied = ask(&harness, nginx(query, "GET", path, "192.0.2.1")).await;
        assert_eq!((denied.status, &*denied.text), (status, body), "{path}{query}");
        assert_eq!(denied.field("retry-after"), Some("60"), "{path}{query}");
    }
    let denied = ask(&harness, nginx("", "GET", "/shop", "192.0.2.1")).await;
    assert_eq!(denied.field("content-type"), Some("text/html"));
}

// Whatever the configuration and the proxy's parameters.
#[tokio::test]
async fn no_fallback_turns_a_denial_into_permission() {
    for status in 200..=599 {
        let limit = format!("[limits.s]\nrule = \"1/min\"\nfallback = {{ status = {status} }}\n");
        let harness = Harness::with(crate::config::read(&limit, "tidegate.toml").unwrap());
        for query in ["", "?deny=403", "?limit=s&key=alice", "?limit=s&key=alice&deny=403"] {
            ask(&harness, nginx(query, "GET", "/", "192.0.2.1")).await;
            let denied = ask(&harness, nginx(query, "GET", "/", "192.0.2.1")).await;
            let is_expected = match (query.contains("deny"), status) {
                (true, _) => denied.status == 403,
                (false, 400..) => denied.status == status,
                (false, _) => denied.status == 429,
            };
            assert!(is_expected, "{status}{query}: {}", denied.status);
        }
    }
}

#[tokio::test]
async fn a_request_that_has_to_wait_is_answered_after_the_wait() {
    let harness = Arc::new(harness());
    let slow = || nginx("", "GET", "/slow", "192.0.2.1");
    assert_eq!(ask(&harness, slow()).await.status, 204);
    let waiting = tokio::spawn({
        let harness = Arc::clone(&harness);
        async move { ask(&harness, slow()).await.status }
    });
    while harness.clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished());
    harness.clock.advance(Span::from_millis(100));
    assert_eq!(waiting.await.unwrap(), 204);
}

#[tokio::test]
async fn named_limits_take_the_given_key_or_their_own() {
    let harness = harness();
    let named = |query: &str| nginx(query, "POST", "/login", "192.0.2.1");
    let reply = ask(&harness, named("?limit=address&limit=4%2Fh&key=al%20ice&cost=2")).await;
    assert_eq!(reply.status, 204);
    assert_eq!(reply.field("ratelimit"), Some(r#""address";r=0;t=60, "4/h";r=2;t=1800"#));
    let other = harness.check(r#"{"limit":"address","key":"al ice"}"#).await;
    assert_eq!(other.status, 429, "it is the same key on every path");
    let own_key = ask(&harness, named("?limit=address")).await;
    assert_eq!(own_key.field("ratelimit"), Some(r#""address";r=1;t=30"#));
}

#[tokio::test]
async fn an_explanation_names_the_deciding_limit_and_charges_nothing() {
    let harness = harness();
    let explain = |query: &str| {
        Request::get(format!("/v1/explain{query}"))
            .header("host", "127.0.0.1:8080")
            .header("x-original-method", "POST")
            .header("x-original-uri", "/login")
            .header("x-forwarded-for", "192.0.2.1")
    };
    for _ in 0..2 {
        let json = ask(&harness, explain("?cost=2")).await.json();
        assert_eq!((&json["verdict"], &json["decided_by"]), (&json!("allow"), &json!("address")));
        assert_eq!(
            (&json["limits"][0]["key"], &json["limits"][2]["counts"]),
            (&json!("192.0.2.1"), &json!(false))
        );
    }
    let json = ask(&harness, explain("?cost=3")).await.json();
    assert_eq!(json["verdict"], "deny");
    assert_eq!(ask(&harness, explain("?coast=3")).await.status, 400);
}

#[tokio::test]
async fn a_client_that_is_not_a_trusted_proxy_is_not_believed() {
    let mut config = crate::config::read(CONFIG, "tidegate.toml").unwrap();
    config.server.trusted_proxies.clear();
    let harness = Harness::with(config);
    for client in ["192.0.2.1", "192.0.2.2"] {
        assert_eq!(ask(&harness, nginx("", "POST", "/login", client)).await.status, 204);
    }
    let third = nginx("", "POST", "/login", "192.0.2.3");
    assert_eq!(ask(&harness, third).await.status, 429, "all of them are the peer");
}

#[tokio::test]
async fn concurrency_limits_are_skipped_unless_they_are_named() {
    let harness = Harness::new();
    let authorize = |query: &str| nginx(query, "GET", "/", "192.0.2.1");
    for _ in 0..4 {
        let reply = ask(&harness, authorize("")).await;
        assert_eq!(reply.status, 204);
        assert!(!reply.field("ratelimit-policy").unwrap().contains("pool"));
    }
    for query in ["?limit=pool", "?limit=pool&key=db", "?limit=api&limit=pool&key=db"] {
        let reply = ask(&harness, authorize(query)).await;
        assert_eq!(reply.status, 400, "{query}");
        assert!(reply.detail().contains("ask /v1/acquire"), "{query}");
    }
}

#[tokio::test]
async fn a_wrong_parameter_is_refused() {
    let harness = harness();
    let many = format!("?{}", "limit=a&".repeat(65));
    let wrong = [
        ("?limits=address", 400, "did you mean `limit`?"),
        ("?colour=1", 400, "there are limit, key"),
        ("?key=alice", 400, "`key` needs `limit`"),
        ("?limit=address&key=a&cost=-1", 400, "`cost` is a whole number"),
        ("?deny=200", 400, "`deny` is a status from 400 to 599"),
        ("?deny=x", 400, "`deny` is a status"),
        ("?limit=adress&key=a", 404, "did you mean the limit `address`?"),
        (&*many, 400, "at most 64 limits"),
    ];
    for (query, status, says) in wrong {
        let reply = ask(&harness, nginx(query, "GET", "/", "192.0.2.1")).await;
        assert_eq!(reply.status, status, "{query}");
        assert!(reply.detail().contains(says), "{query}: {}", reply.detail());
    }
}
