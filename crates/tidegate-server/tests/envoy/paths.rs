//! With the guide's settings, the limit of a page counts every path that Envoy routes to the page, and Envoy forwards no other
//! path to it.

use crate::guide::{block, put};
use crate::proxy::Envoy;
use crate::{grpc_only, serve_tidegate};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tidegate::ManualClock;
use tidegate::snapshot::Snapshot;
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{Config, DescriptorConfig, LimitConfig};
use tidegate_server::matching::{DescriptorPart, Pattern};
use tidegate_server::server::Server;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Two listeners with the same routes: `open` without a rate limit, `limited` with Tidegate's.
const AROUND: &str = r#"
admin:
  address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
static_resources:
  listeners:
    - name: open
      address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: open
                PATHS
                route_config: &routes
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
                        - match: { path: /login }
                          response_headers_to_add: [{ header: { key: x-page, value: login } }]
                          route:
                            cluster: upstream
                            rate_limits:
                              - actions:
                                  - generic_key: { descriptor_key: page, descriptor_value: login }
                        - match: { prefix: / }
                          route: { cluster: upstream }
                http_filters:
                  - &router
                    name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
    - name: limited
      address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: limited
                PATHS
                route_config: *routes
                http_filters:
                  - name: envoy.filters.http.ratelimit
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: edge
                      failure_mode_deny: true
                      timeout: 5s
                      rate_limit_service:
                        transport_api_version: V3
                        grpc_service:
                          envoy_grpc: { cluster_name: tidegate }
                          initial_metadata:
                            - { key: authorization, value: Bearer secret }
                  - *router
  clusters:
    - name: upstream
      type: STATIC
      load_assignment:
        cluster_name: upstream
        endpoints:
          - lb_endpoints:
              - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: UPSTREAM_PORT } } }
    - name: tidegate
      type: STATIC
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: { http2_protocol_options: {} }
      load_assignment:
        cluster_name: tidegate
        endpoints:
          - lb_endpoints:
              - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: TIDEGATE_PORT } } }
"#;

const STARTS: [&str; 32] = [
    "/",
    "//",
    "///",
    "/./",
    "/%2e/",
    "/.//",
    "%2f",
    "/%2f",
    "%2F/",
    "\\",
    "/\\",
    "%5c",
    "/%5c",
    "%252f",
    "/;/",
    "/x/../",
    "/x/%2e%2e/",
    "/x/.%2e/",
    "/x/%252e%252e/",
    "/x//../",
    "/x//../../",
    "/x/y/../../",
    "/x%2f../",
    "/x/..%2f",
    "/x%2f..%2f",
    "/x%2fy/../",
    "/x%2fy/../../",
    "/x\\..\\",
    "/x%5c..%5c",
    "/x/..;/",
    "/./x/.././",
    "/x/../../",
];
const NAMES: [&str; 6] = ["login", "%6cogin", "l%6Fgin", "%6c%6f%67%69%6e", "%256cogin", "log%69n"];
const ENDS: [&str; 14] = [
    "", "/", "//", "/.", "%2f", "/x/..", "/x/../", ";x", ".", "%20", "%3f", "?x=1", "?/../x", "%00",
];

fn spellings() -> Vec<String> {
    let with = |start: &'static str| {
        let names = NAMES.iter().map(move |name| format!("{start}{name}"));
        names.chain(ENDS.iter().map(move |end| format!("{start}login{end}")))
    };
    STARTS.iter().copied().flat_map(with).collect()
}

/// Returns the path after decoding, merging slashes and resolving dot segments, as an upstream like nginx or Caddy does.
fn page(path: &str) -> String {
    let mut decoded = String::new();
    let mut rest = path;
    while let Some(letter) = rest.chars().next() {
        let escape = rest.strip_prefix('%').and_then(|rest| rest.get(..2));
        if let Some(byte) = escape.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            decoded.push(char::from(byte));
            rest = &rest[3..];
        } else {
            decoded.push(letter);
            rest = &rest[letter.len_utf8()..];
        }
    }
    let mut segments = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    // nginx and Caddy keep a slash at the end.
    let ends_in_slash =
        decoded.rsplit('/').next().is_some_and(|last| matches!(last, "" | "." | ".."));
    format!("/{}{}", segments.join("/"), if ends_in_slash { "/" } else { "" })
}

/// Starts an upstream whose response body is the path of the request.
fn serve_echo(runtime: &Runtime) -> SocketAddr {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|request: http::Request<_>| async move {
                let path = request.uri().path().to_owned();
                Ok::<_, Infallible>(http::Response::new(path))
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

/// Returns a server that admits one login a day.
fn server() -> Arc<Server> {
    let mut login = LimitConfig::new("login", "1/day".parse().unwrap());
    let value = Some(Pattern("login".to_owned()));
    login.descriptor = Some(DescriptorConfig {
        domain: "edge".to_owned(),
        entries: vec![DescriptorPart { key: "page".to_owned(), value }],
        replaces: Vec::new(),
    });
    let config = Config { server: grpc_only(), limits: vec![login], ..Config::default() };
    Server::new(config, None, ServerClock::Manual(ManualClock::new()), Snapshot::default())
}

#[test]
fn no_spelling_of_a_route_gets_past_its_limit() {
    let set = block("yaml", "normalize_path:");
    let config = put(&put(AROUND, "PATHS", set), "PATHS", set);
    let runtime = Runtime::new().unwrap();
    let (upstream, tidegate) = (serve_echo(&runtime), serve_tidegate(server()));
    let envoy = Envoy::start(&runtime, ("paths", &config), upstream, tidegate.address());
    let get = |listener: &str, path: &str| runtime.block_on(envoy.get_raw(listener, path)).unwrap();

    let (mut names, mut elsewhere) = (Vec::new(), 0);
    for path in spellings() {
        let (status, head, body) = get("open", &path);
        let is_login = head.contains("x-page: login");
        if is_login {
            names.push(path);
        } else if status == 200 {
            assert_ne!(
                page(&body),
                "/login",
                "Envoy forwards {path} as {body} without counting it"
            );
            elsewhere += 1;
        }
    }
    assert!(names.len() + elsewhere > 200, "{} and {elsewhere}", names.len());
    assert!(names.len() > 100, "{}", names.len());
    let passed: Vec<&String> = names.iter().filter(|path| get("limited", path).0 == 200).collect();
    assert_eq!(passed, ["/login"], "each name is counted");
}
