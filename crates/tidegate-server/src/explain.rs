//! Explains which limits decide a request, with the state of its keys.
//!
//! Always   An explanation peeks at keys and charges none.

pub use tidegate_config::explain::*;

use crate::config::ServerConfig;
use crate::engine::{Engine, LimitRequest, Limits};
use crate::matching::Request;

/// Explains what would happen to this request if it came now.
pub async fn explain(engine: &Engine, request: &Request<'_>, cost: u64) -> Explanation {
    let limits = engine.limits();
    let configs = limits.named().iter().map(|limit| limit.config());
    add_states(engine, &limits, Explanation::of_request(configs, request), cost).await
}

/// Explains what would happen to the described request if it came now. The description must be
/// [valid](RequestDescription::wrong).
pub async fn explain_description(
    engine: &Engine,
    description: &RequestDescription,
    server: &ServerConfig,
) -> Explanation {
    let Some(domain) = &description.domain else {
        let request = description.request(server);
        let mut explanation = explain(engine, &request, description.cost).await;
        explanation.hint = proxy_hint(description.ip, &request, server);
        return explanation;
    };
    let limits = engine.limits();
    let configs: Vec<_> = limits.named().iter().map(|limit| limit.config()).collect();
    let entries = description.entries();
    let explanation = Explanation::of_descriptors(&configs, limits.descriptors(), domain, &entries);
    add_states(engine, &limits, explanation, description.cost).await
}

/// Adds what each limit would decide for its key now, also while the store does not answer.
async fn add_states(
    engine: &Engine,
    limits: &Limits,
    mut explanation: Explanation,
    cost: u64,
) -> Explanation {
    for (KeyToPeek { index, key }, explained) in explanation.limits_to_peek() {
        let limit = &limits.named()[index];
        let ask = LimitRequest { limit, key: &key, cost };
        let decision = match engine.peek_rule(&ask).await {
            Ok(decision) => decision,
            Err(error) => {
                explained.add_store_error(limit.config(), &error);
                engine.peek_without_store(&ask)
            }
        };
        explained.add_state(engine.shown_key(limit, &key), &decision);
    }
    explanation.conclude()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key that a limit by these parts is shown to count this request on.
    fn shown_key(engine: &Engine, request: &Request<'_>) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let explained = runtime.block_on(explain(engine, request, 1));
        explained.limits[0].key.clone().expect("it counts every request")
    }

    fn engine(key: &str) -> Engine {
        let text = format!("[limits.a]\nrule = \"9/s\"\nkey = {key}\n");
        let config = crate::config::read(&text, "t.toml").unwrap();
        let clock = crate::clock::ServerClock::Manual(tidegate::ManualClock::new());
        Engine::new(&config, clock, &tidegate::snapshot::Snapshot::default())
    }

    #[test]
    fn a_key_is_shown_without_the_credentials_in_it() {
        let request = |cookie: &'static [u8]| Request {
            path: Some("/a".into()),
            headers: vec![("authorization", b"Bearer hush"), ("cookie", cookie)],
            ..Request::default()
        };
        let (one, two) = (request(b"sid=s3cret"), request(b"sid=other"));
        let parts = [
            "\"header:authorization\"",
            "[\"cookie:sid\", \"path\"]",
            "[\"path\", \"header:cookie\"]",
        ];
        for parts in parts {
            let engine = engine(parts);
            let text = shown_key(&engine, &one);
            assert!(
                text.starts_with("[redacted ") && text.len() >= "[redacted ]".len() + 16,
                "{text}"
            );
            assert_eq!(text, shown_key(&engine, &one));
        }
        let by_cookie = engine("\"cookie:sid\"");
        let (one_key, two_key) = (shown_key(&by_cookie, &one), shown_key(&by_cookie, &two));
        assert_ne!(one_key, two_key, "different keys look different");
        let nobody = shown_key(&engine("\"cookie:none\""), &one);
        assert_eq!(nobody, "", "the key of requests without a credential has none in it");
        assert_eq!(shown_key(&engine("\"path\""), &one), "/a");
    }
}
