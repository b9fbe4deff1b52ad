//! Tests of problems.

use super::{Harness, limit, post};
use crate::config::{Config, Token};
use http::{Request, Version};

const ALICE: &[u8] = br#"{"limit":"api","key":"alice"}"#;

#[tokio::test]
async fn invalid_json_is_refused_with_its_position() {
    let harness = Harness::new();
    let bodies: &[(&[u8], &str)] = &[
        (b"", "EOF while parsing a value at line 1 column 0"),
        (b"{\n \"limit\": }", "expected value at line 2 column 11"),
        (br#"{"limit":"api","key":"a"} x"#, "trailing characters at line 1 column 27"),
        (
            br#"{"limit":"api","kee":"a"}"#,
            "unknown member `kee`; did you mean `key`? at line 1 column 20",
        ),
        (
            br#"{"colour":1}"#,
            "unknown member `colour`; there are limit, rule, key, key_base64, cost, id, checks at line 1 column 9",
        ),
        (br#"{"limit":"api","key":"a","key":"b"}"#, "`key` is there twice at line 1 column 35"),
        (
            br#"{"limit":"api","key":7}"#,
            "invalid type: integer `7`, expected a string at line 1 column 22",
        ),
        (
            br#"{"limit":"api","key":"a","cost":-1}"#,
            "invalid type: integer `-1`, expected a whole number",
        ),
        (
            br#"{"limit":"api","key":"a","cost":1.5}"#,
            "invalid type: floating point `1.5`, expected a whole number",
        ),
        (
            br#"{"limit":"api","key":"a","cost":18446744073709551616}"#,
            "expected a whole number from 0 to 18446744073709551615",
        ),
        (b"{\"limit\":\"api\",\"key\":\"\xff\"}", "invalid unicode code point at line 1 column 23"),
        (b"{\"limit\":\"api\",\"key\":\"\x01\"}", "control character"),
        (br#"["api"]"#, "expected an object with limit"),
        (br#"{"key":"a"}"#, "`limit` is missing"),
        (br#"{"limit":"api"}"#, "`key` is missing"),
        (br#"{"limit":"api","rule":"1/s","key":"a"}"#, "not both"),
        (br#"{"limit":"api","key":"a","key_base64":"YQ=="}"#, "not both"),
        (br#"{"limit":"api","key_base64":"Y?"}"#, "`key_base64` is not base64"),
    ];
    for (body, says) in bodies {
        let reply = harness.post("/v1/check", body).await;
        assert_eq!(reply.status, 400, "{says}");
        assert!(reply.detail().contains(says), "{:?} does not contain {says:?}", reply.detail());
    }
}

#[tokio::test]
async fn a_key_has_4096_bytes_and_not_one_more() {
    let harness = Harness::new();
    let ask = |length: usize| format!(r#"{{"limit":"api","key":"{}"}}"#, "k".repeat(length));
    assert_eq!(harness.check(&ask(4_096)).await.status, 200);
    for length in [4_097, 1 << 20] {
        let reply = harness.check(&ask(length)).await;
        assert_eq!(reply.status, 400);
        assert!(reply.detail().starts_with("a key has at most 4096 bytes"), "{}", reply.detail());
    }
}

#[tokio::test]
async fn an_unknown_limit_is_not_found_and_a_similar_one_suggested() {
    let harness = Harness::new();
    let reply = harness.check(r#"{"limit":"apo","key":"a"}"#).await;
    assert_eq!(reply.status, 404);
    assert!(reply.detail().ends_with("did you mean the limit `api`?"), "{}", reply.detail());
    let long = format!(r#"{{"limit":"{}","key":"a"}}"#, "x".repeat(300));
    assert_eq!(harness.check(&long).await.status, 400);
}

#[tokio::test]
async fn an_unknown_path_or_method_is_refused() {
    let harness = Harness::new();
    let reply = harness.post("/v1/chekc", ALICE).await;
    assert_eq!(reply.status, 404);
    assert!(reply.detail().ends_with("did you mean /v1/check?"), "{}", reply.detail());
    let reply = harness.get("/v1/check").await;
    assert_eq!((reply.status, reply.field("allow")), (405, Some("POST")));
    let reply = harness.post("/", ALICE).await;
    assert_eq!((reply.status, reply.field("allow")), (405, Some("GET")));
    let long = format!("/{}", "x".repeat(10_000));
    assert_eq!(harness.get(&long).await.status, 404);
}

#[tokio::test]
async fn a_cross_site_request_of_a_browser_is_refused() {
    let harness = Harness::new();
    let kinds = [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/jsonp",
    ];
    for kind in kinds {
        let request =
            Request::post("/v1/check").header("host", "localhost").header("content-type", kind);
        assert_eq!(harness.ask(request, ALICE).await.status, 415, "{kind}");
    }
    let untyped = Request::post("/v1/check").header("host", "localhost");
    assert_eq!(harness.ask(untyped, ALICE).await.status, 415);
    let with_charset = Request::post("/v1/check")
        .header("host", "localhost")
        .header("content-type", "Application/JSON; charset=utf-8");
    assert_eq!(harness.ask(with_charset, ALICE).await.status, 200);
}

#[tokio::test]
async fn a_request_has_exactly_one_host() {
    let harness = Harness::new();
    let hostless = || Request::post("/v1/check").header("content-type", "application/json");
    assert_eq!(harness.ask(hostless(), ALICE).await.status, 400);
    let twice = hostless().header("host", "a").header("host", "b");
    assert_eq!(harness.ask(twice, ALICE).await.status, 400);
    let empty = hostless().header("host", "");
    assert_eq!(harness.ask(empty, ALICE).await.status, 400);
    let http_2 = Request::post("http://localhost/v1/check")
        .version(Version::HTTP_2)
        .header("content-type", "application/json");
    assert_eq!(harness.ask(http_2, ALICE).await.status, 200);
}

#[tokio::test]
async fn ambiguous_framing_is_refused() {
    let harness = Harness::new();
    let chunked = post("/v1/check").header("transfer-encoding", "chunked");
    assert_eq!(harness.ask(chunked, ALICE).await.status, 200);
    let odd = [
        post("/v1/check").header("transfer-encoding", "gzip, chunked"),
        post("/v1/check")
            .header("transfer-encoding", "chunked")
            .header("transfer-encoding", "chunked"),
    ];
    for request in odd {
        assert_eq!(harness.ask(request, ALICE).await.status, 400);
    }
}

#[tokio::test]
async fn only_a_valid_token_is_accepted_if_tokens_are_configured() {
    let harness = Harness::with_token("s3cret");
    let refused = harness.post("/v1/check", ALICE).await;
    assert_eq!(refused.status, 401);
    assert_eq!(refused.field("www-authenticate"), Some(r#"Bearer realm="tidegate""#));
    let with = |name: &str, value: &str| post("/v1/check").header(name, value);
    let good = [
        with("authorization", "Bearer s3cret"),
        with("authorization", "bearer s3cret"),
        with("x-api-key", "s3cret"),
        with("x-api-key", "s3cret").header("authorization", "Basic YTpi"),
    ];
    for request in good {
        assert_eq!(harness.ask(request, ALICE).await.status, 200);
    }
    let bad = [
        with("authorization", "s3cret"),
        with("authorization", "Bearer s3cre"),
        with("authorization", "Bearer s3cret1"),
        with("authorization", "Bearer "),
        with("authorization", "Bearer"),
        with("x-api-key", ""),
    ];
    for request in bad {
        assert_eq!(harness.ask(request, ALICE).await.status, 401);
    }
    assert_eq!(harness.get("/").await.status, 200);
    assert_eq!(harness.get("/openapi.json").await.status, 200);
}

#[tokio::test]
async fn every_refusal_is_a_problem_that_says_its_status() {
    let harness = Harness::new();
    let refusals = [
        harness.check("{").await,
        harness.get("/nowhere").await,
        harness.get("/v1/check").await,
        harness.ask(Request::post("/v1/check").header("host", "a"), ALICE).await,
    ];
    for reply in refusals {
        assert_eq!(reply.field("content-type"), Some("application/problem+json"));
        assert_eq!(reply.json()["status"], reply.status);
        assert_eq!(reply.json()["type"], "about:blank");
    }
}

#[tokio::test]
async fn an_invalid_rule_is_a_bad_request_with_its_position_in_one_line() {
    let harness = Harness::new();
    for body in [r#"{"rule":"10/m","key":"a"}"#, r#"{"limit":"10/m","key":"a"}"#] {
        let reply = harness.check(body).await;
        assert_eq!(reply.status, 400, "{}", reply.text);
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert_eq!(
            detail,
            "`10/m` is not a rule: unknown unit `m`: did you mean `min`?, at character 4"
        );
    }
    for body in [r#"{"rule":"nonesuch","key":"a"}"#, r#"{"rule":"","key":"a"}"#] {
        assert_eq!(harness.check(body).await.status, 400, "{body}");
    }
    let reply = harness.check(r#"{"limit":"nonesuch","key":"a"}"#).await;
    assert_eq!(reply.status, 404, "this may be a name: {}", reply.text);
    assert!(!reply.text.contains("\\n") && !reply.text.contains('^'), "{}", reply.text);
}

#[tokio::test]
async fn a_path_of_the_other_listener_is_named_as_such() {
    let harness = Harness::new();
    for path in ["/metrics", "/livez", "/readyz", "/v1/limits", "/v1/top", "/v1/reload"] {
        let reply = harness.get(path).await;
        assert_eq!(reply.status, 404);
        assert!(reply.text.contains("is on the admin listener"), "{path}: {}", reply.text);
    }
}

#[tokio::test]
async fn the_start_page_has_a_command_that_works() {
    let home = Harness::new().ask(Request::get("/").header("host", "tide.example:7"), b"").await;
    assert!(
        home.text.contains("curl -X POST http://tide.example:7/v1/check -H 'Content-Type"),
        "{}",
        home.text
    );
    let files = crate::tls::tests::Files::new();
    let mut config = Config::default();
    config.server.tls = Some(files.config());
    config.server.tokens = vec![Token::new("s3cret")];
    let harness = Harness::with(config);
    let home = harness.get("/").await;
    assert!(
        home.text.contains("https://localhost/v1/check -H 'Authorization: Bearer TOKEN' -H"),
        "{}",
        home.text
    );
    let odd = harness.ask(Request::get("/").header("host", "a';rm -rf x"), b"").await;
    assert!(!odd.text.contains("rm -rf"), "{}", odd.text);
}

/// JSON escapes some of them in the response, but a client that shows the decoded text would show all.
#[tokio::test]
async fn no_problem_repeats_a_control_character_of_the_request() {
    let harness = Harness::new();
    let hostile = r"\u001b[31m\u0007\u0000\u007f\u009b31m\u202e";
    for body in [
        format!(r#"{{"limit":"{hostile}","key":"a"}}"#),
        format!(r#"{{"rule":"{hostile}","key":"a"}}"#),
        format!(r#"{{"{hostile}":1}}"#),
        format!(r#"{{"limit":"api","key":"a","cost":"{hostile}"}}"#),
    ] {
        let reply = harness.post("/v1/check", &body).await;
        assert!((400..500).contains(&reply.status), "{body}");
        let detail = reply.detail();
        let is_harmful = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!detail.contains(is_harmful), "{body}: {detail:?}");
    }
}

#[tokio::test]
async fn without_ad_hoc_rules_a_rule_in_a_request_is_forbidden() {
    let mut config = Config { limits: vec![limit("api", "10/s")], ..Config::default() };
    config.server.has_ad_hoc_rules = false;
    let harness = Harness::with(config);
    let rule = r#"{"rule":"5/h","key":"k"}"#;
    for (path, body) in [
        ("/v1/check", rule),
        ("/v1/check", r#"{"checks":[{"limit":"api","key":"k"},{"rule":"5/h","key":"k"}]}"#),
        ("/v1/peek", rule),
        ("/v1/refund", rule),
        ("/v1/acquire", r#"{"rule":"concurrency 1","key":"k"}"#),
    ] {
        let reply = harness.post(path, body).await;
        assert_eq!(reply.status, 403, "{path}: {}", reply.text);
        assert!(reply.detail().contains("`ad_hoc_rules = false`"), "{path}: {}", reply.text);
    }
    let named = harness.check(r#"{"limit":"api","key":"k"}"#).await;
    assert_eq!((named.status, &named.json()["remaining"]), (200, &9.into()), "nothing was charged");
}
