//! The value of a query parameter and of the cookies that Envoy sends in a descriptor, as the guide describes it.

use crate::guide::with_route;
use crate::proxy::Envoy;
use crate::{grpc_only, serve_tidegate, serve_upstream};
use std::sync::Arc;
use tidegate::ManualClock;
use tidegate::snapshot::Snapshot;
use tidegate_server::clock::ServerClock;
use tidegate_server::config;
use tidegate_server::engine::LimitRequest;
use tidegate_server::server::Server;
use tokio::runtime::Runtime;

const ROUTE: &str = "\
route:
  cluster: upstream
  rate_limits:
    - actions:
        - query_parameters: { query_parameter_name: user, descriptor_key: user }
    - actions:
        - request_headers: { header_name: cookie, descriptor_key: cookies }
";

const LIMITS: &str = "\
[limits.user]
rule = \"1000/day\"
domain = \"edge\"
descriptor = [\"user\"]
[limits.cookies]
rule = \"1000/day\"
domain = \"edge\"
descriptor = [\"cookies\"]
";

/// Request targets, and the value that Envoy sends.
const TARGETS: [(&str, Option<&str>); 13] = [
    ("/?user=ann", Some("ann")),
    ("/?x=1&user=ann", Some("ann")),
    ("/?user=ann&user=bob", Some("ann")),
    ("/?user=bob&user=ann", Some("bob")),
    ("/?us%65r=%61nn", Some("ann")),
    ("/?user=a+b", Some("a+b")),
    ("/?user=&user=ann", Some("")),
    ("/?user", Some("")),
    ("/?user=ann;user=bob", Some("ann;user=bob")),
    ("/?x=1;user=ann", None),
    ("/?User=ann", None),
    ("/?user[]=ann", None),
    ("/", None),
];

/// Header lines of the request, and the value that Envoy sends.
const COOKIES: [(&str, Option<&str>); 6] = [
    ("cookie: sid=1\r\n", Some("sid=1")),
    ("cookie: sid=1; x=2\r\n", Some("sid=1; x=2")),
    ("cookie: x=2; sid=1\r\n", Some("x=2; sid=1")),
    ("cookie: sid=1\r\ncookie: x=2\r\n", Some("sid=1")),
    ("cookie: x=2\r\nCOOKIE: sid=1\r\n", Some("x=2")),
    ("", None),
];

struct CountingServer {
    server: Arc<Server>,
    runtime: Runtime,
}

impl CountingServer {
    /// Returns how many requests the limit counted.
    fn all(&self, limit: &str) -> u64 {
        let limits = self.server.engine.limits();
        limits.get(limit).unwrap().counters().stats().allowed
    }

    /// Returns how many requests the limit counted under this key.
    fn of(&self, limit: &str, key: &str) -> u64 {
        let limits = self.server.engine.limits();
        let limit = limits.get(limit).unwrap();
        let look = LimitRequest { limit, key: key.as_bytes(), cost: 0 };
        1_000 - self.runtime.block_on(self.server.engine.peek(&look)).unwrap().decision.remaining
    }
}

#[test]
fn envoy_sends_the_first_value_of_a_parameter_and_the_whole_first_cookie_header() {
    let mut config = config::read(LIMITS, "t.toml").unwrap();
    config.server = grpc_only();
    let clock = ServerClock::Manual(ManualClock::new());
    let server = Server::new(config, None, clock, Snapshot::default());
    let counted = CountingServer { server: Arc::clone(&server), runtime: Runtime::new().unwrap() };
    let upstream = serve_upstream(&counted.runtime);
    let tidegate = serve_tidegate(server);
    let config = with_route(ROUTE);
    let envoy = Envoy::start(&counted.runtime, ("values", &config), upstream, tidegate.address());

    let targets = TARGETS.iter().map(|(target, value)| ("user", *target, "", *value));
    let cookies = COOKIES.iter().map(|(lines, value)| ("cookies", "/", *lines, *value));
    for (limit, target, lines, value) in targets.chain(cookies) {
        let before = (counted.all(limit), value.map(|value| counted.of(limit, value)));
        let answer = counted.runtime.block_on(envoy.get_raw_with("guide", target, lines));
        assert_eq!(answer.unwrap().0, 200, "{target} {lines}");
        let after = (counted.all(limit), value.map(|value| counted.of(limit, value)));
        let one_more = (before.0 + u64::from(value.is_some()), before.1.map(|count| count + 1));
        assert_eq!(after, one_more, "{target} {lines}");
    }
}
