//! A server with its own Redis, and a RESP session, without sockets.

use http::Request;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tidegate::snapshot::Snapshot;
use tidegate_redis::RedisStore;
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{self, Config};
use tidegate_server::protocol::http::RawResponse;
use tidegate_server::protocol::resp::Session;
use tidegate_server::server::Server;

/// A server with limits in Redis or in memory, and a RESP session.
pub(crate) struct Harness {
    pub(crate) server: Arc<Server>,
    session: Session,
}

impl Harness {
    pub(crate) async fn new(url: &str, limits: &str) -> Self {
        let text = format!("[store]\nurl = \"{url}\"\n{limits}");
        let config: Config =
            config::read(&text, "t.toml").unwrap_or_else(|error| panic!("{error}"));
        let store = config.store.clone().expect("the configuration has a store");
        // A long deadline, because a busy machine must not make the server decide without Redis.
        let (address, settings) = config::store_client(&store);
        let settings = settings.deadline(Duration::from_secs(10));
        let redis = RedisStore::connect_with(&address, settings).await;
        let server = Server::shared(config, None, ServerClock::system(), redis);
        Self { session: Session::new(Arc::clone(&server)), server }
    }

    /// Returns a server with limits in memory.
    pub(crate) fn in_memory(limits: &str) -> Self {
        let config: Config =
            config::read(limits, "t.toml").unwrap_or_else(|error| panic!("{error}"));
        let server = Server::new(config, None, ServerClock::system(), Snapshot::default());
        Self { session: Session::new(Arc::clone(&server)), server }
    }

    /// Sends lines as a pipeline and returns the answers, with spaces for line breaks.
    pub(crate) async fn say(&mut self, lines: &[&str]) -> String {
        let bytes = lines.join("\r\n") + "\r\n";
        let mut done = 0;
        while done < bytes.len() {
            done += self.session.answer(&bytes.as_bytes()[done..]).await;
        }
        let said = String::from_utf8_lossy(self.session.output()).replace("\r\n", " ");
        self.session.clear_output();
        said.trim_end().to_owned()
    }

    /// Returns status and body of a POST.
    pub(crate) async fn post(&self, path: &str, body: &str) -> (u16, String) {
        let request = Request::post(path).header("content-type", "application/json");
        let (parts, ()) = request
            .header("host", "localhost")
            .body(())
            .expect("the request is valid")
            .into_parts();
        let peer = SocketAddr::from(([127, 0, 0, 1], 50_000));
        read(
            &tidegate_server::protocol::http::answer(&self.server, &parts, body.as_bytes(), peer)
                .await,
        )
    }

    /// Returns status and body of a GET from the admin listener.
    pub(crate) async fn admin(&self, path: &str) -> (u16, String) {
        let request = Request::get(path).header("host", "localhost");
        let (parts, ()) = request.body(()).expect("the request is valid").into_parts();
        read(&tidegate_server::protocol::admin::answer(&self.server, &parts).await)
    }
}

fn read(answered: &RawResponse) -> (u16, String) {
    let status = answered.status().as_u16();
    (status, String::from_utf8(answered.body().to_vec()).expect("the body is UTF-8"))
}
