//! An Envoy process for tests.

use anyhow::{Context, ensure};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

/// Interval between two attempts to find Envoy's listeners.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of attempts: one minute, for a busy machine.
const POLLS_MAX: usize = 1_200;

pub(crate) struct Envoy {
    process: Child,
    listeners: HashMap<String, SocketAddr>,
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // Envoy may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Envoy {
    /// Starts Envoy with this configuration, in which `UPSTREAM_PORT` and `TIDEGATE_PORT` are replaced. At most one Envoy may run
    /// under each name.
    pub(crate) fn start(
        runtime: &Runtime,
        (name, config): (&str, &str),
        upstream: SocketAddr,
        tidegate: SocketAddr,
    ) -> Self {
        let program = std::env::var_os("TIDEGATE_ENVOY").expect("TIDEGATE_ENVOY is Envoy's path");
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let ports = config
            .replace("UPSTREAM_PORT", &upstream.port().to_string())
            .replace("TIDEGATE_PORT", &tidegate.port().to_string());
        let config = directory.join(format!("{name}.yaml"));
        let admin = directory.join(format!("{name}.admin"));
        let listeners = ports.matches("stat_prefix:").count();
        fs::write(&config, ports).unwrap();
        // A file of an earlier run would have the address of an Envoy that has ended.
        let _ = fs::remove_file(&admin);
        let process = Command::new(program)
            .arg("--config-path")
            .arg(&config)
            .arg("--admin-address-path")
            .arg(&admin)
            .args(["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "error"])
            .spawn()
            .expect("TIDEGATE_ENVOY can be started");
        let mut envoy = Self { process, listeners: HashMap::new() };
        runtime.block_on(envoy.find_listeners(&admin, listeners));
        envoy
    }

    /// Waits until Envoy is ready, and reads its ports from the admin listener.
    async fn find_listeners(&mut self, admin: &Path, count: usize) {
        for _ in 0..POLLS_MAX {
            if let Some(status) = self.process.try_wait().unwrap() {
                panic!("Envoy ended with {status}");
            }
            let address = fs::read_to_string(admin).ok().and_then(|text| text.trim().parse().ok());
            if let Some(address) = address
                && let Ok(listeners) = listeners(address).await
                && listeners.len() == count
            {
                self.listeners = listeners;
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        panic!("Envoy does not start in time");
    }

    pub(crate) async fn get(
        &self,
        listener: &str,
        path: &str,
        user: Option<HeaderValue>,
    ) -> (StatusCode, HeaderMap, String) {
        let mut request = Request::get(path).header("host", "tests");
        if let Some(user) = user {
            request = request.header("x-user", user);
        }
        send(self.listeners[listener], request.body(Empty::new()).unwrap()).await.unwrap()
    }
}

impl Envoy {
    /// Sends this request target unchanged, which client libraries do not, and returns the status, head and body.
    pub(crate) async fn get_raw(
        &self,
        listener: &str,
        target: &str,
    ) -> anyhow::Result<(u16, String, String)> {
        self.get_raw_with(listener, target, "").await
    }

    /// Sends this request target and these header lines unchanged, and returns the status, head and body.
    pub(crate) async fn get_raw_with(
        &self,
        listener: &str,
        target: &str,
        lines: &str,
    ) -> anyhow::Result<(u16, String, String)> {
        let mut stream = TcpStream::connect(self.listeners[listener]).await?;
        stream
            .write_all(format!("GET {target} HTTP/1.1\r\nhost: tests\r\n{lines}\r\n").as_bytes())
            .await?;
        let mut answer = Vec::new();
        loop {
            if let Some((head, body)) = whole(&answer) {
                let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
                return Ok((status.context("a status")?, head.to_ascii_lowercase(), body));
            }
            ensure!(stream.read_buf(&mut answer).await? > 0, "the answer ends early");
        }
    }
}

/// Returns the head and the body, if the response is complete.
fn whole(answer: &[u8]) -> Option<(String, String)> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lengths = head.lines().filter_map(|line| line.strip_prefix("content-length: "));
    let length = lengths.next().map_or(Ok(0), str::parse);
    (body.len() >= length.ok()?).then(|| (head.to_owned(), body.to_owned()))
}

async fn listeners(admin: SocketAddr) -> anyhow::Result<HashMap<String, SocketAddr>> {
    let request = Request::get("/listeners").header("host", "admin").body(Empty::new())?;
    let (_, _, text) = send(admin, request).await?;
    // Each line is `name::address`.
    let lines = text.lines().filter_map(|line| line.split_once("::"));
    lines.map(|(name, address)| Ok((name.to_owned(), address.parse()?))).collect()
}

async fn send(
    address: SocketAddr,
    request: Request<Empty<Bytes>>,
) -> anyhow::Result<(StatusCode, HeaderMap, String)> {
    let stream = TokioIo::new(TcpStream::connect(address).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok((head.status, head.headers, String::from_utf8(body.to_vec())?))
}
