//! The app, served on a free port of the loopback interface.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

use axum_app::{Rules, app};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct App {
    address: SocketAddr,
    end: oneshot::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
}

struct Reply {
    status: u16,
    headers: axum::http::HeaderMap,
    body: String,
}

impl App {
    async fn start(rules: Rules) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = app(&rules).unwrap().into_make_service_with_connect_info::<SocketAddr>();
        let (end, ended) = oneshot::channel::<()>();
        let ended = async { drop(ended.await) };
        let server = axum::serve(listener, app).with_graceful_shutdown(ended);
        Self { address, end, server: tokio::spawn(server.into_future()) }
    }

    async fn get(&self, path: &str, user: Option<&str>) -> Reply {
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let mut request = axum::http::Request::get(format!("http://{}{path}", self.address));
        if let Some(user) = user {
            request = request.header("x-api-key", user);
        }
        let response = client.request(request.body(Full::default()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Reply { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Returns the statuses of `count` requests, one after the other.
    async fn statuses(&self, count: usize, path: &str, user: Option<&str>) -> Vec<u16> {
        let mut statuses = Vec::new();
        for _ in 0..count {
            statuses.push(self.get(path, user).await.status);
        }
        statuses
    }

    async fn end(self) {
        self.end.send(()).unwrap();
        self.server.await.unwrap().unwrap();
    }
}

/// Rules that refill so slowly that nothing changes while the test runs.
fn slow() -> Rules {
    Rules {
        per_ip: "12/h",
        per_ip_tried: "2/h",
        per_user: "11/h",
        reports: "concurrency 4",
        news: "2/h",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_has_its_burst_and_gets_the_remaining_count() {
    let app = App::start(slow()).await;
    let first = app.get("/hello", None).await;
    assert_eq!((first.status, &*first.body), (200, "hello\n"));
    let left = first.headers["ratelimit"].to_str().unwrap();
    assert!(left.starts_with(r#""per-ip";r=11;t="#), "{left}");
    // The headers do not show the limit in shadow mode.
    assert_eq!(first.headers["ratelimit-policy"], r#""per-ip";q=12;w=3600"#);
    assert_eq!(app.statuses(11, "/hello", None).await, [200; 11]);
    let denied = app.get("/hello", None).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.headers["content-type"], "application/problem+json");
    assert!(denied.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    let metrics = app.get("/metrics", None).await;
    assert_eq!(metrics.status, 200, "metrics are not limited");
    for line in [
        r#"limit_decisions_total{limit="per-ip",verdict="allow"} 12"#,
        r#"limit_decisions_total{limit="per-ip",verdict="deny"} 1"#,
        r#"limit_decisions_total{limit="per-ip-tried",verdict="shadow"} 10"#,
    ] {
        assert!(metrics.body.contains(line), "{line} is not in\n{}", metrics.body);
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_counted_and_reports_cost_them_more() {
    let app = App::start(slow()).await;
    let anonymous = app.get("/notes", None).await;
    assert_eq!(anonymous.status, 429);
    assert!(anonymous.body.contains("counts by `extension`, which the request does not have"));
    assert_eq!(app.statuses(2, "/report", Some("bob")).await, [200, 429]);
    assert_eq!(app.statuses(2, "/notes", Some("bob")).await, [200, 429], "a report costs 10 of 11");
    assert_eq!(app.get("/notes", Some("alice")).await.status, 200, "each user has a bucket");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_over_the_limit_gets_a_cheaper_response() {
    let app = App::start(slow()).await;
    let mut news = Vec::new();
    for _ in 0..3 {
        let reply = app.get("/news", None).await;
        news.push((reply.status, reply.body));
    }
    let today = (200, "today's news\n".to_owned());
    assert_eq!(news, [today.clone(), today, (200, "yesterday's news\n".to_owned())]);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_rules_admit_a_burst_and_deny_a_flood() {
    let app = App::start(Rules::default()).await;
    let statuses = app.statuses(60, "/hello", None).await;
    assert_eq!(statuses[..10], [200; 10]);
    assert!(statuses.iter().all(|status| [200, 429].contains(status)));
    app.end().await;
}
