//! A buyer over HTTP, with its own connection.

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

use crate::http::{self as service, Request};
use crate::reply::SaleReply;
use crate::shop::Access;
use crate::way::Way;

/// One connection to the service.
pub struct HttpBuyer {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

impl HttpBuyer {
    /// Connects to the service.
    pub async fn arrive(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // `send_request` reports errors of the connection.
        tokio::spawn(connection);
        Ok(Self { sender, host: address.to_string() })
    }

    /// Attempts to buy one. An error means that the service did not answer, or not with a valid reply.
    pub async fn buy(&mut self, access: Access, way: Way, buyer: i64) -> anyhow::Result<SaleReply> {
        let body = serde_json::to_vec(&Request { buyer })?;
        let request = hyper::Request::builder()
            .method(Method::POST)
            .uri(service::path(access, way))
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body.into()))?;
        let (status, body) = self.send(request).await?;
        let Ok(answer) = serde_json::from_slice::<SaleReply>(&body) else {
            bail!("the service answers {status}: {}", String::from_utf8_lossy(&body));
        };
        Ok(answer)
    }

    /// Sends any request.
    pub async fn send(
        &mut self,
        request: hyper::Request<Full<Bytes>>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }
}

/// Raises the limit of open files to its maximum, and returns an error if `connections` need more.
pub fn raise_descriptor_limit(connections: u32) -> anyhow::Result<()> {
    // Both ends of each connection are in this process, and some other files are open.
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
