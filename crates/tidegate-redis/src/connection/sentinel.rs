//! Finds the current primary, which may move from server to server.
//!
//! Invariant  A server that calls itself a replica is not used as a primary, whatever a sentinel says.
//! Invariant  Sentinels are asked regularly even while the primary answers: a primary that they have replaced and cannot
//!            reach may still answer, and its counts are lost.
//! Invariant  A replaced or restarted server is recognised by its `run_id`, and one that was a replica in between by its
//!            `master_replid`. Each such change increases [`Primary::changes`], so that leases of the old one are not used.

use super::address::{Address, Deployment, Host};
use crate::sync::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Timeout of requests to a sentinel, and of `INFO`.
const TIMEOUT: Duration = Duration::from_millis(500);

/// A primary, at whichever server it is now.
#[derive(Debug)]
pub(super) struct Primary {
    address: Address,
    /// The server that was the primary last.
    latest: Mutex<PrimaryIdentity>,
    changes: AtomicU64,
}

#[derive(Debug)]
struct PrimaryIdentity {
    host: Host,
    /// Its `run_id` and `master_replid`.
    ids: [Option<String>; 2],
}

impl Primary {
    pub(super) fn new(address: Address, host: Host) -> Self {
        let latest = Mutex::new(PrimaryIdentity { host, ids: [None, None] });
        Self { address, latest, changes: AtomicU64::new(0) }
    }

    pub(super) fn address(&self) -> String {
        self.latest.lock().host.to_string()
    }

    /// Returns how often the primary was replaced or restarted.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns a client for the server that is the primary now.
    pub(super) async fn find(&self) -> Result<Client, String> {
        if let Deployment::Sentinel { name } = &self.address.deployment {
            let host = self.ask_sentinels(name).await?;
            self.latest.lock().host = host;
        }
        let host = self.latest.lock().host.clone();
        client(&self.address, &host).map_err(|error| error.to_string())
    }

    /// Returns the address of the new primary, if sentinels report that it was replaced.
    pub(super) async fn successor(&self) -> Option<String> {
        let Deployment::Sentinel { name } = &self.address.deployment else { return None };
        let host = self.ask_sentinels(name).await.ok()?;
        let latest = self.latest.lock();
        (host != latest.host).then(|| host.to_string())
    }

    async fn ask_sentinels(&self, name: &str) -> Result<Host, String> {
        let mut why = String::new();
        for sentinel in &self.address.hosts {
            let asked = ask_sentinel(&self.address, sentinel, name);
            match tokio::time::timeout(TIMEOUT, asked).await {
                Ok(Ok(host)) => return Ok(host),
                Ok(Err(error)) => why = format!("sentinel {sentinel}: {error}"),
                Err(_) => why = format!("sentinel {sentinel} did not answer within {TIMEOUT:?}"),
            }
        }
        Err(why)
    }

    /// Identifies the server at the other end of a new connection.
    ///
    /// # Errors
    /// The server does not answer, or is a replica.
    pub(super) async fn identify(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), String> {
        let info = redis::cmd("INFO");
        let answer = tokio::time::timeout(TIMEOUT, connection.send_packed_command(&info)).await;
        let Ok(answer) = answer else {
            return Err(format!("no answer to INFO within {TIMEOUT:?}"));
        };
        // Without the permission for `INFO`, servers cannot be told apart: every connection may be to a new one.
        let text = answer.ok().and_then(|value| redis::from_redis_value::<String>(value).ok());
        let Some(text) = text else {
            self.changes.fetch_add(1, Ordering::AcqRel);
            return Ok(());
        };
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        if field("role") == Some("slave") {
            return Err(format!("{} is a replica, not a primary", self.address()));
        }
        let mut latest = self.latest.lock();
        let ids = ["run_id", "master_replid"].map(|name| field(name).map(str::to_owned));
        if ids != latest.ids {
            latest.ids = ids;
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

async fn ask_sentinel(address: &Address, sentinel: &Host, name: &str) -> Result<Host, String> {
    let credentials = address.sentinel.clone();
    let sentinel_address = Address { credentials, database: 0, ..address.clone() };
    let client = client(&sentinel_address, sentinel).map_err(|error| error.to_string())?;
    let connected = client.get_multiplexed_async_connection().await;
    let mut connection = connected.map_err(|error| error.to_string())?;
    let mut command = redis::cmd("SENTINEL");
    command.arg("get-master-addr-by-name").arg(name);
    let answer = command.query_async::<Option<(String, u16)>>(&mut connection).await;
    match answer.map_err(|error| error.to_string())? {
        Some((name, port)) => Ok(Host { name, port }),
        None => Err(format!("it knows no primary called `{name}`")),
    }
}

/// Returns a client for one server.
pub(super) fn client(address: &Address, host: &Host) -> redis::RedisResult<Client> {
    let info = info(address, host)?;
    match &address.ca {
        #[cfg(feature = "tls")]
        Some(file) => {
            let read = std::fs::read(file).map_err(|error| {
                std::io::Error::new(error.kind(), format!("{}: {error}", file.display()))
            })?;
            let certificates = redis::TlsCertificates { client_tls: None, root_cert: Some(read) };
            Client::build_with_tls(info, certificates)
        }
        _ => Client::open(info),
    }
}

fn info(address: &Address, host: &Host) -> redis::RedisResult<ConnectionInfo> {
    let server = if address.is_tls {
        let (host, port) = (host.name.clone(), host.port);
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host.name.clone(), host.port)
    };
    let mut settings = RedisConnectionInfo::default().set_db(address.database);
    if let Some(credentials) = &address.credentials {
        settings = settings.set_password(&credentials.password);
        if let Some(user) = &credentials.user {
            settings = settings.set_username(user);
        }
    }
    // `CLIENT SETINFO` would need a permission that limits do not need.
    let settings = settings.set_skip_set_lib_name();
    Ok(server.into_connection_info()?.set_redis_settings(settings))
}
