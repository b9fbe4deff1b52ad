//! Tests of the header fields by which a proxy describes its client's request.

use super::Harness;
use http::Request;
use http::request::Builder;
use serde_json::Value;

const CONFIG: &str = r#"
[limits.address]
rule = "1/min"
when = { path = "/limited*", method = "GET" }

[limits.host]
rule = "1/min"
when = { host = "api.example.org" }
"#;

fn harness() -> Harness {
    Harness::with(crate::config::read(CONFIG, "tidegate.toml").unwrap())
}

/// Returns a proxy's request with the header fields of this family.
fn told(url: &str, family: &str, path: &str) -> Builder {
    Request::get(url)
        .header("host", "127.0.0.1:8080")
        .header(format!("{family}-uri"), path)
        .header(format!("{family}-method"), "GET")
        .header(format!("{family}-host"), "app.example.org")
}

/// Returns the limits that count a request.
async fn counting(harness: &Harness, request: Builder) -> Vec<String> {
    let told = harness.ask(request, b"").await.json();
    let counts = |limit: &&Value| limit["counts"] == true;
    let limits = told["limits"].as_array().unwrap_or_else(|| panic!("{told}"));
    limits.iter().filter(counts).map(|limit| limit["limit"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_client_cannot_choose_the_limits_that_count_it() {
    let harness = harness();
    let families = ["x-original", "x-forwarded"];
    for (family, other) in families.into_iter().zip(families.into_iter().rev()) {
        let url = |path: &str| format!("{path}?from={family}");
        let spoofed = |path: &str| {
            told(&url(path), family, "/limited/page")
                .header(format!("{other}-uri"), "/free")
                .header(format!("{other}-method"), "POST")
                .header(format!("{other}-host"), "free.example.org")
        };
        assert_eq!(counting(&harness, spoofed("/v1/explain")).await, ["address"], "{family}");
        let asked = told(&url("/v1/explain"), family, "/free")
            .header(format!("{other}-uri"), "/limited/page")
            .header(format!("{other}-host"), "api.example.org");
        assert_eq!(counting(&harness, asked).await, [""; 0], "{family}");
        let (first, second) = (
            harness.ask(spoofed("/v1/authorize"), b"").await,
            harness.ask(spoofed("/v1/authorize"), b"").await,
        );
        assert_eq!((first.status, second.status), (204, 429), "{family}");
        harness.post("/v1/reset", r#"{"limit":"address","key":""}"#).await;
    }
}

#[tokio::test]
async fn a_request_with_both_families_is_refused_unless_one_is_named() {
    let harness = harness();
    for path in ["/v1/authorize", "/v1/explain"] {
        for (family, other) in [
            ("x-original", "x-forwarded-uri"),
            ("x-original", "x-forwarded-method"),
            ("x-forwarded", "x-original-uri"),
            ("x-forwarded", "x-original-method"),
        ] {
            let reply =
                harness.ask(told(path, family, "/limited").header(other, "/free"), b"").await;
            assert_eq!(reply.status, 400, "{path} {family} {other}");
            let detail = reply.detail();
            assert!(detail.contains("`from=x-original` (nginx)"), "{detail}");
            assert!(detail.contains("`from=x-forwarded` (Caddy, Traefik)"), "{detail}");
        }
    }
    let one = told("/v1/explain", "x-forwarded", "/limited").header("x-forwarded-proto", "https");
    assert_eq!(counting(&harness, one).await, ["address"], "the only family counts");
    assert_eq!(
        harness.get("/v1/explain").await.status,
        200,
        "a request without any family describes itself"
    );
    let far = told("/v1/explain", "x-original", "/limited")
        .header("x-forwarded-host", "api.example.org")
        .header("x-forwarded-proto", "https");
    assert_eq!(counting(&harness, far).await, ["address"], "a host alone describes no request");
}

#[tokio::test]
async fn a_proxy_must_send_each_field_of_its_family_once() {
    let harness = harness();
    let ask =
        |query: &str| Request::get(format!("/v1/authorize{query}")).header("host", "localhost");
    let wrong = [
        (ask("?from=x-original"), "does not send `x-original-uri`"),
        (ask("?from=x-original").header("x-forwarded-uri", "/"), "does not send `x-original-uri`"),
        (
            ask("?from=x-original").header("x-original-uri", "/"),
            "does not send `x-original-method`",
        ),
        (ask("?from=x-original").header("x-original-uri", ""), "does not send `x-original-uri`"),
        (
            told("/v1/authorize", "x-original", "/limited").header("x-original-uri", "/free"),
            "`x-original-uri` is there more than once",
        ),
        (
            told("/v1/authorize", "x-forwarded", "/limited").header("x-forwarded-host", "b"),
            "`x-forwarded-host` is there more than once",
        ),
        (ask("?from=original"), "did you mean `x-original`?"),
        (ask("?from=nginx"), "`from` must be `x-original` or `x-forwarded`"),
    ];
    for (request, says) in wrong {
        let reply = harness.ask(request, b"").await;
        assert_eq!(reply.status, 400, "{says}");
        assert!(reply.detail().contains(says), "{:?} does not contain {says:?}", reply.detail());
    }
}

#[tokio::test]
async fn the_host_is_that_of_the_clients_request() {
    let harness = harness();
    for family in ["x-original", "x-forwarded"] {
        let request = |host: &str| {
            Request::get(format!("/v1/explain?from={family}"))
                .header("host", "127.0.0.1:8080")
                .header(format!("{family}-uri"), "/")
                .header(format!("{family}-method"), "GET")
                .header(format!("{family}-host"), host)
        };
        assert_eq!(counting(&harness, request("API.example.org:443")).await, ["host"], "{family}");
        assert_eq!(counting(&harness, request("www.example.org")).await, [""; 0], "{family}");
    }
}

#[tokio::test]
async fn a_path_may_contain_any_bytes() {
    let harness = harness();
    let odd = |path: &[u8]| {
        Request::get("/v1/explain")
            .header("host", "127.0.0.1:8080")
            .header("x-original-uri", http::HeaderValue::from_bytes(path).unwrap())
    };
    assert_eq!(counting(&harness, odd("/limited/é?q=ü".as_bytes())).await, ["address"]);
    assert_eq!(counting(&harness, odd(b"/limited/\xff")).await, ["address"]);
    assert_eq!(counting(&harness, odd(b"/\xff/limited")).await, [""; 0]);
    let method = odd(b"/limited")
        .header("x-original-method", http::HeaderValue::from_bytes(b"G\xc3").unwrap());
    assert_eq!(harness.ask(method, b"").await.status, 400);
}

#[tokio::test]
async fn a_clients_query_is_not_taken_for_the_proxys() {
    let harness = harness();
    // Caddy's request if its `uri` has no query.
    let query = "limit=1000000%2Fs&key=me";
    let forwarded =
        told(&format!("/v1/authorize?{query}"), "x-forwarded", &format!("/limited?{query}"));
    let reply = harness.ask(forwarded, b"").await;
    assert_eq!(reply.status, 400);
    assert!(reply.detail().contains("appends its client's query"), "{}", reply.detail());
    // The client may also choose the family and describe another request with it, or encode the query differently.
    let chosen = format!("from=x-original&{query}");
    let chosen = told(&format!("/v1/authorize?{chosen}"), "x-original", "/")
        .header("x-forwarded-uri", format!("/limited?{chosen}"))
        .header("x-forwarded-method", "GET");
    assert_eq!(harness.ask(chosen, b"").await.status, 400);
    let cut =
        told(&format!("/v1/authorize?{query}"), "x-forwarded", &format!("/limited?{query}#x"));
    assert_eq!(harness.ask(cut, b"").await.status, 400);
    let letters = http::HeaderValue::from_bytes(format!("/limited?{query}\u{e9}").as_bytes());
    let letters = Request::get(format!("/v1/authorize?{query}\u{e9}"))
        .header("host", "127.0.0.1:8080")
        .header("x-forwarded-uri", letters.unwrap())
        .header("x-forwarded-method", "GET");
    assert_eq!(harness.ask(letters, b"").await.status, 400);
    let own = told("/v1/authorize?from=x-forwarded", "x-forwarded", &format!("/limited?{query}"));
    assert_eq!(harness.ask(own, b"").await.status, 204);
    let plain = told("/v1/authorize?", "x-forwarded", "/limited?");
    assert_eq!(harness.ask(plain, b"").await.status, 429, "nothing was handed on");
}

#[tokio::test]
async fn only_a_decision_gives_a_proxy_permission() {
    let harness = harness();
    // Go's request if its client's target is opaque (`x:http://h/`): only the query of the proxy's URL remains.
    for target in ["/", "/openapi.json", "/v1/authorize", "/v1/explain", "/livez"] {
        let absolute = format!("http://h{target}?from=x-forwarded");
        let reply = harness.ask(told(&absolute, "x-forwarded", "/limited"), b"").await;
        assert_eq!(reply.status, 400, "{absolute}");
    }
    for target in ["/", "/openapi.json"] {
        for family in ["x-forwarded", "x-original"] {
            let reply = harness.ask(told(target, family, "/limited"), b"").await;
            assert_eq!(reply.status, 400, "{target} {family}");
        }
        assert_eq!(
            harness.get(&format!("{target}?from=x-forwarded")).await.status,
            400,
            "{target}"
        );
        assert_eq!(harness.get(target).await.status, 200, "{target}");
    }
}

#[tokio::test]
async fn a_uri_must_begin_with_a_path() {
    let harness = harness();
    for uri in ["http://h/limited", "x:/limited", "h:80", "limited", "#/limited", "?limited"] {
        for family in ["x-forwarded", "x-original"] {
            let reply = harness.ask(told("/v1/authorize", family, uri), b"").await;
            assert_eq!(reply.status, 400, "{uri}");
            assert!(reply.detail().contains("must begin with `/`"), "{}", reply.detail());
        }
    }
    assert_eq!(harness.ask(told("/v1/authorize", "x-forwarded", "*"), b"").await.status, 204);
}

#[tokio::test]
async fn a_raw_hash_is_no_way_around_a_limit() {
    let harness = harness();
    for uri in ["/x#/../limited", "/limited#x", "/limited#?x", "/x#/%2e%2e/limited"] {
        assert_eq!(
            counting(&harness, told("/v1/explain", "x-original", uri)).await,
            ["address"],
            "{uri}"
        );
    }
}

#[tokio::test]
async fn a_method_in_lower_case_is_the_same_method() {
    let harness = harness();
    for method in ["GET", "get", "Get"] {
        let request = Request::get("/v1/explain")
            .header("host", "127.0.0.1:8080")
            .header("x-forwarded-uri", "/limited")
            .header("x-forwarded-method", method);
        assert_eq!(counting(&harness, request).await, ["address"], "{method}");
    }
}
