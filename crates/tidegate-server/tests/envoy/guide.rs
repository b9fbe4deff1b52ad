//! The guide's configurations of Envoy and Tidegate work unchanged.

use crate::proxy::Envoy;
use crate::{grpc_only, serve_tidegate, serve_upstream};
use http::{HeaderValue, StatusCode};
use std::sync::Arc;
use tidegate::ManualClock;
use tidegate::snapshot::Snapshot;
use tidegate_server::clock::ServerClock;
use tidegate_server::config;
use tidegate_server::engine::LimitRequest;
use tidegate_server::protocol::grpc::TEXT_BYTES_MAX;
use tidegate_server::server::Server;
use tokio::runtime::Runtime;

const GUIDE: &str = include_str!("../../../../docs/guide/envoy.md");

/// The rest of Envoy's configuration, which the guide leaves out.
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

/// Returns the guide's code block in this language with this beginning.
pub(crate) fn block(language: &str, beginning: &str) -> &'static str {
    let fence = format!("```{language}\n");
    let mut blocks = GUIDE.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.find(|block| block.starts_with(beginning)).expect("the guide has such a block")
}

/// Replaces the line with this word by the block, indented like the word.
pub(crate) fn put(text: &str, word: &str, block: &str) -> String {
    let line =
        text.lines().find(|line| line.trim() == word).expect("the text has a line with the word");
    let blanks = &line[..line.len() - word.len()];
    let lines: Vec<String> = block.lines().map(|line| format!("{blanks}{line}")).collect();
    text.replacen(line, &lines.join("\n"), 1)
}

fn replaced(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "`{old}` is not in the guide");
    text.replace(old, new)
}

/// Returns Envoy's configuration as the guide shows it.
fn envoy() -> String {
    with_route(block("yaml", "route:"))
}

/// Returns Envoy's configuration as the guide shows it, with this route.
pub(crate) fn with_route(route: &str) -> String {
    let (filters, clusters) = block("yaml", "http_filters:").split_once("\n\n").unwrap();
    // A busy machine may need longer, and with this configuration Envoy rejects requests after a timeout.
    let filters = replaced(filters, "timeout: 0.1s", "timeout: 5s");
    let clusters = replaced(clusters, "8081", "TIDEGATE_PORT");
    let envoy = put(AROUND, "ROUTE", route);
    put(&put(&envoy, "FILTERS", &filters), "CLUSTERS", &clusters)
}

fn server() -> Arc<Server> {
    let mut config = config::read(block("toml", "[limits.per-user]"), "guide.toml").unwrap();
    config.server = grpc_only();
    let clock = ServerClock::Manual(ManualClock::new());
    Server::new(config, None, clock, Snapshot::default())
}

/// Returns a value that is longer than a descriptor's may be.
fn long() -> HeaderValue {
    HeaderValue::from_bytes(&[b'a'; TEXT_BYTES_MAX + 1]).unwrap()
}

#[test]
fn the_guides_configurations_limit_requests() {
    let server = server();
    let runtime = Runtime::new().unwrap();
    let upstream = serve_upstream(&runtime);
    let tidegate = serve_tidegate(server.clone());
    let envoy = Envoy::start(&runtime, ("guide", &envoy()), upstream, tidegate.address());
    let user = || Some(HeaderValue::from_static("alice"));
    let get = || runtime.block_on(envoy.get("guide", "/", user()));
    let (status, ..) = runtime.block_on(envoy.get("guide", "/", Some(long())));
    assert_eq!(
        status,
        StatusCode::INTERNAL_SERVER_ERROR,
        "a request with a descriptor that is too long is rejected"
    );
    for _ in 0..20 {
        assert_eq!(get().0, StatusCode::OK);
    }
    let (status, headers, _) = get();
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "the address has used up its searches");
    assert_eq!(headers["ratelimit-limit"], "20");
    let limits = server.engine.limits();
    let limit = limits.get("per-user").unwrap();
    let look = LimitRequest { limit, key: b"alice", cost: 0 };
    let left = runtime.block_on(server.engine.peek(&look)).unwrap().decision.remaining;
    assert_eq!(left, 80, "no limit is charged for a denied request");
}

#[test]
fn no_header_makes_a_request_pass_uncounted() {
    let passing = replaced(&envoy(), "failure_mode_deny: true ", "failure_mode_deny: false ");
    let bound = block("yaml", "max_request_headers_kb:").trim();
    let prefix = "stat_prefix: guide\n";
    let bounded = replaced(&passing, prefix, &format!("{prefix}                {bound}\n"));
    let runtime = Runtime::new().unwrap();
    let upstream = serve_upstream(&runtime);
    let tidegate = serve_tidegate(server());
    for (name, config, expected) in [
        ("guide-passing", passing, StatusCode::OK),
        ("guide-bounded", bounded, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
    ] {
        let envoy = Envoy::start(&runtime, (name, &config), upstream, tidegate.address());
        assert_eq!(runtime.block_on(envoy.get("guide", "/", Some(long()))).0, expected, "{name}");
        let short = Some(HeaderValue::from_static("alice"));
        assert_eq!(runtime.block_on(envoy.get("guide", "/", short)).0, StatusCode::OK, "{name}");
    }
}
