//! What the guide tells people to write into Envoy's configuration, and into ours, works as it stands there.

use crate::proxy::Envoy;
use crate::{serve_tidegate, serve_upstream};
use http::{HeaderValue, StatusCode};
use tidegate::{ManualClock, Snapshot};
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{self, Token};
use tidegate_server::engine::Ask;
use tidegate_server::server::Server;
use tidegate_server::store::Key;
use tokio::runtime::Runtime;

const GUIDE: &str = include_str!("../../../../docs/guide/envoy.md");

/// What the guide leaves out: it stands around what it shows.
const AROUND: &str = r#"
admin:
  address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
static_resources:
  listeners:
    - name: guide
      address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: guide
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
                        - match: { prefix: / }
                          ROUTE
                FILTERS
  CLUSTERS
    - name: upstream
      type: STATIC
      load_assignment:
        cluster_name: upstream
        endpoints:
          - lb_endpoints:
              - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: UPSTREAM_PORT } } }
"#;

/// The block of this language that begins so.
fn block(language: &str, beginning: &str) -> &'static str {
    let fence = format!("```{language}\n");
    let mut blocks = GUIDE.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.find(|block| block.starts_with(beginning)).expect("the guide shows one")
}

/// In the place of a word, with as many blanks before each line as there are before the word.
fn put(text: &str, word: &str, block: &str) -> String {
    let line = text.lines().find(|line| line.trim() == word).expect("it is there");
    let blanks = &line[..line.len() - word.len()];
    let lines: Vec<String> = block.lines().map(|line| format!("{blanks}{line}")).collect();
    text.replacen(line, &lines.join("\n"), 1)
}

fn replaced(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "`{old}` is not in the guide");
    text.replace(old, new)
}

#[test]
fn what_the_guide_shows_works() {
    let (filters, clusters) = block("yaml", "http_filters:").split_once("\n\n").unwrap();
    // On a busy machine it may take longer, and then Envoy lets pass.
    let filters = replaced(filters, "timeout: 0.1s", "timeout: 5s");
    let clusters = replaced(clusters, "8081", "TIDEGATE_PORT");
    let envoy = put(AROUND, "ROUTE", block("yaml", "route:"));
    let envoy = put(&put(&envoy, "FILTERS", &filters), "CLUSTERS", &clusters);
    let mut config = config::read(block("toml", "[limits.per-user]"), "guide.toml").unwrap();
    config.server.tokens = vec![Token::new("secret")];
    let clock = ServerClock::Manual(ManualClock::new());
    let server = Server::new(config, None, clock, Snapshot::default());

    let runtime = Runtime::new().unwrap();
    let upstream = serve_upstream(&runtime);
    let (_tidegate, address) = serve_tidegate(server.clone());
    let envoy = Envoy::start(&runtime, ("guide", &envoy), upstream, address);
    let user = || Some(HeaderValue::from_static("alice"));
    let get = || runtime.block_on(envoy.get("guide", "/", user()));
    for _ in 0..20 {
        assert_eq!(get().0, StatusCode::OK);
    }
    let (status, headers, _) = get();
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "a search too many for this address");
    assert_eq!(headers["ratelimit-limit"], "20");
    let limits = server.engine.limits();
    let limit = limits.get("per-user").unwrap();
    let look = Ask { limit, key: Key(b"alice"), cost: 0 };
    let left = runtime.block_on(server.engine.peek(&look)).unwrap().decision.remaining;
    assert_eq!(left, 80, "who is denied is charged by nobody");
}
