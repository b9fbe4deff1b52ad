//! Which request a proxy asks about, where its client has a word in it too.

use super::Bench;
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

fn bench() -> Bench {
    Bench::with(crate::config::read(CONFIG, "tidegate.toml").unwrap())
}

/// As the family of fields that begins so tells of a request.
fn told(url: &str, family: &str, path: &str) -> Builder {
    Request::get(url)
        .header("host", "127.0.0.1:8080")
        .header(format!("{family}-uri"), path)
        .header(format!("{family}-method"), "GET")
        .header(format!("{family}-host"), "app.example.org")
}

/// Which limits count it.
async fn counting(bench: &Bench, request: Builder) -> Vec<String> {
    let told = bench.ask(request, b"").await.json();
    let counts = |limit: &&Value| limit["counts"] == true;
    let limits = told["limits"].as_array().unwrap_or_else(|| panic!("{told}"));
    limits.iter().filter(counts).map(|limit| limit["limit"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn who_is_limited_does_not_choose_by_what() {
    let bench = bench();
    let families = ["x-original", "x-forwarded"];
    for (family, other) in families.into_iter().zip(families.into_iter().rev()) {
        let url = |path: &str| format!("{path}?from={family}");
        let spoofed = |path: &str| {
            told(&url(path), family, "/limited/page")
                .header(format!("{other}-uri"), "/free")
                .header(format!("{other}-method"), "POST")
                .header(format!("{other}-host"), "free.example.org")
        };
        assert_eq!(counting(&bench, spoofed("/v1/explain")).await, ["address"], "{family}");
        let asked = told(&url("/v1/explain"), family, "/free")
            .header(format!("{other}-uri"), "/limited/page")
            .header(format!("{other}-host"), "api.example.org");
        assert_eq!(counting(&bench, asked).await, [""; 0], "{family}");
        let (first, second) = (
            bench.ask(spoofed("/v1/authorize"), b"").await,
            bench.ask(spoofed("/v1/authorize"), b"").await,
        );
        assert_eq!((first.status, second.status), (204, 429), "{family}");
        bench.post("/v1/reset", r#"{"limit":"address","key":""}"#).await;
    }
}

#[tokio::test]
async fn where_both_are_told_and_none_is_named_nothing_is_decided() {
    let bench = bench();
    for path in ["/v1/authorize", "/v1/explain"] {
        for (family, other) in [
            ("x-original", "x-forwarded-uri"),
            ("x-original", "x-forwarded-method"),
            ("x-forwarded", "x-original-uri"),
            ("x-forwarded", "x-original-method"),
        ] {
            let reply = bench.ask(told(path, family, "/limited").header(other, "/free"), b"").await;
            assert_eq!(reply.status, 400, "{path} {family} {other}");
            let detail = reply.detail();
            assert!(detail.contains("`from=x-original` (nginx)"), "{detail}");
            assert!(detail.contains("`from=x-forwarded` (Caddy, Traefik)"), "{detail}");
        }
    }
    let one = told("/v1/explain", "x-forwarded", "/limited").header("x-forwarded-proto", "https");
    assert_eq!(counting(&bench, one).await, ["address"], "one alone is believed");
    assert_eq!(bench.get("/v1/explain").await.status, 200, "as is who tells of no other");
    let far = told("/v1/explain", "x-original", "/limited")
        .header("x-forwarded-host", "api.example.org")
        .header("x-forwarded-proto", "https");
    assert_eq!(counting(&bench, far).await, ["address"], "a host alone tells of no request");
}

#[tokio::test]
async fn a_proxy_tells_what_it_is_said_to_tell_and_once() {
    let bench = bench();
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
            "`x-original-uri` came more than once",
        ),
        (
            told("/v1/authorize", "x-forwarded", "/limited").header("x-forwarded-host", "b"),
            "`x-forwarded-host` came more than once",
        ),
        (ask("?from=original"), "did you mean `x-original`?"),
        (ask("?from=nginx"), "`from` is `x-original` or `x-forwarded`"),
    ];
    for (request, says) in wrong {
        let reply = bench.ask(request, b"").await;
        assert_eq!(reply.status, 400, "{says}");
        assert!(reply.detail().contains(says), "{:?} does not contain {says:?}", reply.detail());
    }
}

#[tokio::test]
async fn the_host_is_the_one_that_is_told() {
    let bench = bench();
    for family in ["x-original", "x-forwarded"] {
        let request = |host: &str| {
            Request::get(format!("/v1/explain?from={family}"))
                .header("host", "127.0.0.1:8080")
                .header(format!("{family}-uri"), "/")
                .header(format!("{family}-method"), "GET")
                .header(format!("{family}-host"), host)
        };
        assert_eq!(counting(&bench, request("API.example.org:443")).await, ["host"], "{family}");
        assert_eq!(counting(&bench, request("www.example.org")).await, [""; 0], "{family}");
    }
}

#[tokio::test]
async fn a_path_that_is_no_ascii_is_a_path() {
    let bench = bench();
    let odd = |path: &[u8]| {
        Request::get("/v1/explain")
            .header("host", "127.0.0.1:8080")
            .header("x-original-uri", http::HeaderValue::from_bytes(path).unwrap())
    };
    assert_eq!(counting(&bench, odd("/limited/é?q=ü".as_bytes())).await, ["address"]);
    assert_eq!(counting(&bench, odd(b"/limited/\xff")).await, ["address"]);
    assert_eq!(counting(&bench, odd(b"/\xff/limited")).await, [""; 0]);
    let method = odd(b"/limited")
        .header("x-original-method", http::HeaderValue::from_bytes(b"G\xc3").unwrap());
    assert_eq!(bench.ask(method, b"").await.status, 400);
}

#[tokio::test]
async fn a_clients_query_is_not_the_proxys() {
    let bench = bench();
    // As Caddy asks where its `uri` has no query.
    let query = "limit=1000000%2Fs&key=me";
    let handed_on =
        told(&format!("/v1/authorize?{query}"), "x-forwarded", &format!("/limited?{query}"));
    let reply = bench.ask(handed_on, b"").await;
    assert_eq!(reply.status, 400);
    assert!(reply.detail().contains("hands on its client's query"), "{}", reply.detail());
    // Who chooses the family too, and tells of another request by it; and who writes it so that it is not the same to the letter.
    let chosen = format!("from=x-original&{query}");
    let chosen = told(&format!("/v1/authorize?{chosen}"), "x-original", "/")
        .header("x-forwarded-uri", format!("/limited?{chosen}"))
        .header("x-forwarded-method", "GET");
    assert_eq!(bench.ask(chosen, b"").await.status, 400);
    let cut =
        told(&format!("/v1/authorize?{query}"), "x-forwarded", &format!("/limited?{query}#x"));
    assert_eq!(bench.ask(cut, b"").await.status, 400);
    let letters = http::HeaderValue::from_bytes(format!("/limited?{query}\u{e9}").as_bytes());
    let letters = Request::get(format!("/v1/authorize?{query}\u{e9}"))
        .header("host", "127.0.0.1:8080")
        .header("x-forwarded-uri", letters.unwrap())
        .header("x-forwarded-method", "GET");
    assert_eq!(bench.ask(letters, b"").await.status, 400);
    let own = told("/v1/authorize?from=x-forwarded", "x-forwarded", &format!("/limited?{query}"));
    assert_eq!(bench.ask(own, b"").await.status, 204);
    let plain = told("/v1/authorize?", "x-forwarded", "/limited?");
    assert_eq!(bench.ask(plain, b"").await.status, 429, "nothing was handed on");
}

#[tokio::test]
async fn nothing_but_a_decision_is_a_yes_to_a_proxy() {
    let bench = bench();
    // As Go asks where its client's target is opaque (`x:http://h/`): the URL of the proxy keeps its query only.
    for target in ["/", "/openapi.json", "/v1/authorize", "/v1/explain", "/livez"] {
        let absolute = format!("http://h{target}?from=x-forwarded");
        let reply = bench.ask(told(&absolute, "x-forwarded", "/limited"), b"").await;
        assert_eq!(reply.status, 400, "{absolute}");
    }
    for target in ["/", "/openapi.json"] {
        for family in ["x-forwarded", "x-original"] {
            let reply = bench.ask(told(target, family, "/limited"), b"").await;
            assert_eq!(reply.status, 400, "{target} {family}");
        }
        assert_eq!(bench.get(&format!("{target}?from=x-forwarded")).await.status, 400, "{target}");
        assert_eq!(bench.get(target).await.status, 200, "{target}");
    }
}

#[tokio::test]
async fn what_is_told_begins_with_a_path() {
    let bench = bench();
    for uri in ["http://h/limited", "x:/limited", "h:80", "limited", "#/limited", "?limited"] {
        for family in ["x-forwarded", "x-original"] {
            let reply = bench.ask(told("/v1/authorize", family, uri), b"").await;
            assert_eq!(reply.status, 400, "{uri}");
            assert!(reply.detail().contains("paths begin with `/`"), "{}", reply.detail());
        }
    }
    assert_eq!(bench.ask(told("/v1/authorize", "x-forwarded", "*"), b"").await.status, 204);
}

#[tokio::test]
async fn a_raw_hash_hides_nothing() {
    let bench = bench();
    for uri in ["/x#/../limited", "/limited#x", "/limited#?x", "/x#/%2e%2e/limited"] {
        assert_eq!(
            counting(&bench, told("/v1/explain", "x-original", uri)).await,
            ["address"],
            "{uri}"
        );
    }
}

#[tokio::test]
async fn a_method_in_small_letters_is_that_method() {
    let bench = bench();
    for method in ["GET", "get", "Get"] {
        let request = Request::get("/v1/explain")
            .header("host", "127.0.0.1:8080")
            .header("x-forwarded-uri", "/limited")
            .header("x-forwarded-method", method);
        assert_eq!(counting(&bench, request).await, ["address"], "{method}");
    }
}
