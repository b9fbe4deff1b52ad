//! Explanations of requests, which charge nothing.

use std::net::IpAddr;
use tidegate::ManualClock;
use tidegate::snapshot::Snapshot;
use tidegate_server::clock::ServerClock;
use tidegate_server::config;
use tidegate_server::engine::{Engine, LimitRequest};
use tidegate_server::explain::{Explanation, VerdictKind, explain};
use tidegate_server::matching::{Request, counted};

const CONFIG: &str = r#"
    [limits.login]
    rule = "2/min fixed"
    key = "ip"
    when = { method = "POST", path = "/login*" }
    [limits.all]
    rule = "100/s"
    [limits.trial]
    rule = "1/min fixed"
    key = "header:x-user"
    mode = "shadow"
    [limits.rest]
    rule = "1/s"
    mode = "off"
    [limits.envoy]
    rule = "1/s"
    domain = "edge"
    descriptor = ["user"]
"#;

fn engine(text: &str) -> Engine {
    let config = config::read(text, "t.toml").expect("the configuration is valid");
    Engine::new(&config, ServerClock::Manual(ManualClock::new()), &Snapshot::default())
}

fn login<'a>(headers: Vec<(&'a str, &'a [u8])>) -> Request<'a> {
    let ip = IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, 9]);
    let (ip, method, path) = (Some(ip), Some("POST"), Some("/login".into()));
    Request { ip, method, path, headers, ..Request::default() }
}

fn explained(engine: &Engine, request: &Request<'_>) -> Explanation {
    now(explain(engine, request, 1))
}

fn now<T>(answer: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime starts").block_on(answer)
}

/// Decides a request and charges its limits.
fn ask(engine: &Engine, request: &Request<'_>) {
    for counted in counted(&engine.limits(), request).expect("the request has a key") {
        let ask = LimitRequest { limit: &counted.limit, key: &counted.key, cost: 1 };
        now(engine.check(&ask)).expect("a store in memory decides");
    }
}

#[test]
fn an_explanation_says_for_each_limit_whether_it_counts_and_why() {
    let engine = engine(CONFIG);
    let shown = explained(&engine, &login(vec![("x-user", b"ann\x1b[1m")])).to_string();
    assert_eq!(
        shown,
        "> login (2/min fixed, enforce) counts it: method is POST, path is /login*
      key \"2001:db8:0:1::/64\", now allow, 1 of 2 remaining, reset after 1min
  all (100/s, enforce) counts it: it counts every request
      key \"\", now allow, 99 of 100 remaining, reset after 10ms
  trial (1/min fixed, shadow) counts it: it counts every request
      key \"ann\\x1b[1m\", now allow, 0 of 1 remaining, reset after 1min
  rest (1/s, off) does not count it: its mode is off
  envoy (1/s, enforce) does not count it: it counts only requests of Envoy
allow: decided by login"
    );
    let elsewhere = Request { path: Some("/".into()), ..login(Vec::new()) };
    let shown = explained(&engine, &elsewhere);
    assert_eq!(shown.decided_by.as_deref(), Some("all"));
    assert_eq!(shown.limits[0].why, "it counts only if path is /login*");
}

#[test]
fn an_explanation_charges_nothing_and_predicts_the_decision() {
    let engine = engine(CONFIG);
    let request = login(vec![("x-user", b"ann")]);
    for _ in 0..5 {
        assert_eq!(explained(&engine, &request).limits[0].now.unwrap().remaining, Some(1));
    }
    ask(&engine, &request);
    let trial = explained(&engine, &request).limits[2].now.unwrap();
    assert!(trial.is_shadowed && trial.verdict == VerdictKind::Deny);
    ask(&engine, &request);
    let shown = explained(&engine, &request);
    assert_eq!((shown.verdict, shown.decided_by.as_deref()), (VerdictKind::Deny, Some("login")));
    assert!(shown.limits[0].now.unwrap().retry_after_ms.unwrap() > 0);
}

#[test]
fn a_wait_in_shadow_mode_is_a_wait() {
    let engine = engine("[limits.a]\nrule = \"1/s queue capacity 5\"\nmode = \"shadow\"\n");
    let request = Request::default();
    ask(&engine, &request);
    let now = explained(&engine, &request).limits[0].now.unwrap();
    assert!(now.is_shadowed && now.verdict == VerdictKind::Wait, "{now:?}");
    assert_eq!(now.retry_after_ms, Some(1_000));
    for _ in 0..5 {
        ask(&engine, &request);
    }
    let now = explained(&engine, &request).limits[0].now.unwrap();
    assert!(now.is_shadowed && now.verdict == VerdictKind::Deny, "{now:?}");
}

#[test]
fn a_request_without_a_key_is_refused_with_the_name_of_the_limit() {
    let engine = engine(
        "[limits.a]\nrule = \"1/s\"\nkey = \"header:x-user\"\non_missing_key = \"deny\"\n\
         [limits.b]\nrule = \"1/s\"\nkey = \"cookie:sid\"\non_missing_key = \"allow\"\n",
    );
    let shown = explained(&engine, &Request::default());
    assert_eq!((shown.verdict, shown.decided_by.as_deref()), (VerdictKind::Deny, Some("a")));
    assert_eq!(shown.limits[0].why, "the request has no header:x-user, and is refused");
    assert_eq!(shown.limits[1].why, "the request has no cookie:sid, and passes uncounted");
    let error = counted(&engine.limits(), &Request::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the limit `a` counts by `header:x-user`, which the request does not have"
    );
}

#[test]
fn a_concurrency_limit_does_not_count_a_request_by_its_description() {
    let engine = engine("[limits.a]\nrule = \"concurrency 1\"\n[limits.b]\nrule = \"1/s\"\n");
    let shown = explained(&engine, &Request::default());
    assert_eq!(shown.decided_by.as_deref(), Some("b"));
    let why = "it counts requests in flight, through /v1/acquire and /v1/release";
    assert_eq!((shown.limits[0].counts, &*shown.limits[0].why), (false, why));
}

#[test]
fn an_explanation_serializes_to_json() {
    let engine = engine("[limits.a]\nrule = \"1/s\"\n");
    let json = serde_json::to_value(explained(&engine, &Request::default())).unwrap();
    let expected = serde_json::json!({
        "verdict": "allow",
        "decided_by": "a",
        "limits": [{
            "limit": "a", "rule": "1/s", "mode": "enforce", "counts": true,
            "why": "it counts every request", "key": "",
            "now": {
                "verdict": "allow", "is_shadowed": false, "limit": 1, "remaining": 0,
                "retry_after_ms": null, "reset_after_ms": 1000,
            },
        }],
    });
    assert_eq!(json, expected);
}
