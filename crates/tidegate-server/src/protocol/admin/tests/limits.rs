//! Tests of `/v1/limits` and `/v1/top`.

use super::{get, harness, post, throttle};
use crate::config::Token;
use crate::protocol::http::tests::Harness;
use http::Request;
use serde_json::{Value, json};

#[tokio::test]
async fn every_limit_is_listed_with_its_rule_and_statistics() {
    let harness = harness();
    harness.check(r#"{"limit":"api","key":"alice","cost":10}"#).await;
    harness.check(r#"{"limit":"api","key":"alice"}"#).await;
    harness.check(r#"{"rule":"5/1min","key":"bob"}"#).await;
    let all = get(&harness, "/v1/limits").await.json();
    let api = &all["limits"][0];
    assert_eq!(
        (&api["name"], &api["rule"], &api["mode"]),
        (&json!("api"), &json!("10/s"), &json!("enforce"))
    );
    assert!(api["explain"].as_str().unwrap().starts_with("admits 10 at once"));
    let stats = &api["stats"];
    assert_eq!(
        (&stats["allow"], &stats["deny"], &stats["keys"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!(all["unnamed"].as_array().unwrap().len(), 1, "two spellings are one limit");
    assert_eq!(all["unnamed"][0]["name"], "5/min");
    assert_eq!(all["is_config_stale"], false);
}

#[tokio::test]
async fn all_throttled_keys_are_listed_as_one_limit() {
    let harness = harness();
    throttle(&harness, 3).await;
    let all = get(&harness, "/v1/limits").await.json();
    let throttle = &all["throttle"];
    assert_eq!((&throttle["name"], &throttle["mode"]), (&json!("CL.THROTTLE"), &json!("enforce")));
    let stats = &throttle["stats"];
    assert_eq!(
        (&stats["allow"], &stats["deny"], &stats["keys"], &stats["max_keys"]),
        (&json!(1), &json!(2), &json!(1), &json!(16_777_216))
    );
    let top = get(&harness, "/v1/top?limit=CL.THROTTLE").await.json();
    assert_eq!(top, json!({"limit": "CL.THROTTLE", "window_s": 0, "hot": [], "denied": []}));
}

#[tokio::test]
async fn few_keys_are_counted_exactly_and_with_their_window() {
    let harness = harness();
    for count in 10..30 {
        for _ in 0..count {
            harness.check(&format!(r#"{{"limit":"api","key":"asked {count} times"}}"#)).await;
        }
    }
    let top = get(&harness, "/v1/top?limit=api&k=20").await.json();
    let shown: Vec<Value> = top["hot"].as_array().unwrap().clone();
    let key =
        |count: u64| json!({"key": format!("asked {count} times"), "count": count, "error": 0});
    assert_eq!(shown, (10..30).rev().map(key).collect::<Vec<_>>());
    assert!((0..=120).contains(&top["window_s"].as_u64().unwrap()));
}

#[tokio::test]
async fn the_operator_sees_ad_hoc_rules_and_can_clear_them() {
    let harness = harness();
    for rule in ["5/1min", "6/1min", "7/1min"] {
        harness.check(&format!(r#"{{"rule":"{rule}","key":"bob","cost":5}}"#)).await;
    }
    let all = get(&harness, "/v1/limits").await.json();
    assert_eq!(all["ad_hoc_rules"], json!({"are_taken": true, "open": 3, "max": 1_024}));
    let clear = |query: &'static str| post(&harness, query);
    let cleared = clear("/v1/ad-hoc-rules/clear?rule=5%2Fmin").await;
    assert_eq!(cleared.json(), json!({"cleared": 1}));
    assert_eq!(clear("/v1/ad-hoc-rules/clear?rule=5%2Fmin").await.status, 404);
    assert_eq!(get(&harness, "/v1/ad-hoc-rules/clear").await.status, 405);
    let said = harness.check(r#"{"rule":"5/1min","key":"bob"}"#).await.json();
    assert_eq!(said["remaining"], 4, "it begins anew");
    assert_eq!(clear("/v1/ad-hoc-rules/clear").await.json(), json!({"cleared": 3}));
    assert_eq!(get(&harness, "/v1/limits").await.json()["unnamed"], json!([]));
}

#[tokio::test]
async fn the_busiest_keys_are_shown_as_text_or_as_bytes() {
    let harness = harness();
    for _ in 0..200 {
        harness.check(r#"{"limit":"api","key":"<b>\u001b\n"}"#).await;
        harness.check(r#"{"limit":"api","key_base64":"//4="}"#).await;
    }
    let top = get(&harness, "/v1/top?limit=api&k=2").await.json();
    assert_eq!(top["limit"], "api");
    let mut keys: Vec<String> = top["denied"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| {
            let text = key["key"].as_str().map(str::to_owned);
            text.unwrap_or_else(|| format!("base64 {}", key["key_base64"].as_str().unwrap()))
        })
        .collect();
    keys.sort();
    assert_eq!(keys, ["<b>\u{1b}\n", "base64 //4="]);
}

/// Returns the keys that `/v1/explain` and `/v1/top` show for a request with this credential.
async fn shown_keys(harness: &Harness, credential: &str) -> [String; 2] {
    let ask = |path: &str| {
        let request = Request::get(path).header("host", "localhost");
        request.header("x-client-authorization", credential)
    };
    for _ in 0..3 {
        assert!(harness.ask(ask("/v1/authorize"), b"").await.status < 300);
    }
    // By name, so that the table stores the key.
    harness.check(&json!({"limit": "client", "key": credential}).to_string()).await;
    let explained = harness.ask(ask("/v1/explain"), b"").await;
    let top = get(harness, "/v1/top?limit=client").await;
    for reply in [&explained, &top] {
        assert!(!reply.text.contains("hush"), "{}", reply.text);
    }
    let text = |value: &Value| value.as_str().expect("a key is text").to_owned();
    [text(&explained.json()["limits"][0]["key"]), text(&top.json()["hot"][0]["key"])]
}

#[tokio::test]
async fn a_key_with_a_credential_is_the_same_digest_in_top_and_in_explain() {
    let config = r#"
        [limits.client]
        rule = "100/min"
        key = "header:x-client-authorization"
    "#;
    let long = format!("Bearer hush{}", "x".repeat(300));
    let mut seen = Vec::new();
    for credential in ["Bearer hush", "Bearer hush", &long] {
        let mut config = crate::config::read(config, "t.toml").unwrap();
        config.server.admin_token = Some(Token::new("0perator"));
        let harness = Harness::with(config);
        let [explained, top] = shown_keys(&harness, credential).await;
        assert_eq!(explained, top, "one function shows both");
        let digest = top.strip_prefix("[redacted ").and_then(|rest| rest.strip_suffix(']'));
        let digest = digest.unwrap_or_else(|| panic!("{top} is no digest"));
        assert!(digest.len() >= 16 && u128::from_str_radix(digest, 16).is_ok(), "{digest}");
        assert!(!seen.contains(&top), "each server has a secret of its own: {top}");
        seen.push(top);
    }
}

#[tokio::test]
async fn an_unknown_limit_and_an_invalid_number_are_refused() {
    let harness = harness();
    let refused = [
        ("/v1/top", 400),
        ("/v1/top?limit=api&k=0", 400),
        ("/v1/top?limit=api&k=101", 400),
        ("/v1/top?limit=api&k=x", 400),
        ("/v1/top?limit=7%2Fmin", 404),
    ];
    for (path, status) in refused {
        assert_eq!(get(&harness, path).await.status, status, "{path}");
    }
    assert!(get(&harness, "/v1/top?limit=apo").await.detail().ends_with("did you mean `api`?"));
    let all = get(&harness, "/v1/limits").await.json();
    assert_eq!(all["unnamed"], json!([]), "looking makes no limit");
}
