//! A buyer who comes over HTTP, with a connection of their own.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use axum::body::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpStream;

use crate::answer::Answer;
use crate::http::{self as service, Request};
use crate::shop::Door;
use crate::way::Way;

/// One connection to the service.
pub struct Visitor {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

impl Visitor {
    /// Connects.
    pub async fn arrive(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // What goes wrong with it is told to whoever sends.
        tokio::spawn(connection);
        Ok(Self { sender, host: address.to_string() })
    }

    /// One attempt to buy. An error means that the service did not answer, or not what we know.
    pub async fn buy(&mut self, door: Door, way: Way, buyer: i64) -> anyhow::Result<Answer> {
        let body = serde_json::to_vec(&Request { buyer })?;
        let request = hyper::Request::builder()
            .method(Method::POST)
            .uri(service::path(door, way))
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body.into()))?;
        let (status, body) = self.send(request).await?;
        let Ok(answer) = serde_json::from_slice::<Answer>(&body) else {
            bail!("the service answers {status}: {}", String::from_utf8_lossy(&body));
        };
        Ok(answer)
    }

    /// Any other request.
    pub async fn send(
        &mut self,
        request: hyper::Request<Full<Bytes>>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }
}

/// Takes all descriptors that this process may have; says what is missing if `connections` need more.
pub fn make_room_for(connections: u32) -> anyhow::Result<()> {
    // Both ends are in this process, and some are open besides.
    let needs = u64::from(connections) * 2 + 256;
    let may = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: may.maximum, maximum: may.maximum })?;
    if let Some(has) = may.maximum.filter(|has| *has < needs) {
        bail!(
            "{connections} connections need {needs} descriptors and there are {has}: raise `ulimit -Hn`, or take fewer --buyers"
        );
    }
    Ok(())
}
