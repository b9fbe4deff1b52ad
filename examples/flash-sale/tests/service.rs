//! The service as a client sees it: replies, statuses, header fields, invalid input.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::body::Bytes;
use flash_sale::entrance::{Entrance, Rules};
use flash_sale::{Database, Shop, http};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

/// A shop with two items, where every buyer may try once in ten seconds.
async fn service() -> (SocketAddr, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", directory.path().join("sale.db").display());
    let database = Database::open(&url, 4).await.unwrap();
    database.put_on_sale(2).await.unwrap();
    let rules =
        Rules { per_buyer: "1/10s".parse().unwrap(), rate: "1/min burst 3".parse().unwrap() };
    let shop = Arc::new(Shop { database, entrance: Entrance::new(rules) });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, http::router(shop)).into_future());
    (address, directory)
}

struct Reply {
    status: u16,
    fields: HashMap<String, String>,
    body: Value,
}

async fn ask(address: SocketAddr, method: Method, path: &str, body: &str) -> Reply {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    let field = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
        (name.to_string(), value.to_str().unwrap().to_owned())
    };
    let fields = response.headers().iter().map(field).collect();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Reply { status, fields, body }
}

async fn buy(address: SocketAddr, path: &str, buyer: i64) -> Reply {
    ask(address, Method::POST, path, &json!({ "buyer": buyer }).to_string()).await
}

#[tokio::test]
async fn a_reply_has_its_status_and_when_to_retry() {
    let (address, _directory) = service().await;
    let first = buy(address, "/sale/condition", 1).await;
    assert_eq!(
        (first.status, first.body),
        (200, json!({ "answer": "sold", "order": 1, "left": 1 }))
    );
    let again = buy(address, "/sale/condition", 1).await;
    assert_eq!((again.status, &again.body["answer"]), (429, &json!("too_many")));
    assert_eq!(again.fields["retry-after"], "10");
    assert_eq!(buy(address, "/sale/for-update", 2).await.status, 200);
    let late = buy(address, "/sale/version", 3).await;
    assert_eq!((late.status, late.body), (410, json!({ "answer": "sold_out" })));
    let fourth = buy(address, "/sale/old-value", 4).await;
    assert_eq!(
        (fourth.status, &fourth.body["answer"]),
        (503, &json!("busy")),
        "no token for a minute"
    );
    // 60 seconds, minus the one second that the shop would have let the buyer wait.
    assert_eq!(fourth.fields["retry-after"], "59");
    let stock = ask(address, Method::GET, "/stock", "").await;
    assert_eq!((stock.status, stock.body), (200, json!({ "count": 2, "sale": 2, "orders": 2 })));
}

#[tokio::test]
async fn without_limits_the_same_buyer_may_buy_all() {
    let (address, _directory) = service().await;
    for left in [1, 0] {
        let sold = buy(address, "/sale/old-value/unlimited", 7).await;
        assert_eq!((sold.status, &sold.body["left"]), (200, &json!(left)));
    }
    assert_eq!(buy(address, "/sale/naive/unlimited", 7).await.status, 410);
}

#[tokio::test]
async fn invalid_input_gets_an_error_with_the_reason() {
    let (address, _directory) = service().await;
    let unknown = buy(address, "/sale/quantum", 1).await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.body["why"].as_str().unwrap().contains("for-update"), "{}", unknown.body);
    let huge = format!(r#"{{"buyer": 1, "note": "{}"}}"#, "x".repeat(http::BODY_BYTES_MAX));
    let cases = [("", 400), ("{}", 422), (r#"{"buyer": "me"}"#, 422), ("[", 400), (&huge, 413)];
    for (body, status) in cases {
        let reply = ask(address, Method::POST, "/sale/condition", body).await;
        assert_eq!(reply.status, status, "{body:.20}: {}", reply.body);
        assert_eq!(reply.body["answer"], "bad_request", "{body:.20}");
        assert!(!reply.body["why"].as_str().unwrap().is_empty());
    }
    assert_eq!(ask(address, Method::GET, "/sale/condition", "").await.status, 405);
    let stock = ask(address, Method::GET, "/stock", "").await;
    assert_eq!(stock.body["orders"], 0, "no item was ordered");
}
