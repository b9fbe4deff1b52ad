//! Where a primary is, which may be another server than a moment ago.
//!
//! Always   What a sentinel says is checked: a server that calls itself a replica is no primary.
//!          Sentinels are asked again while all is well: a primary that they have replaced and cannot reach may answer on,
//!          and what it counts is lost.
//!          A server that was restarted, or another one, is noticed by its `run_id`, and one that was a replica meanwhile by
//!          its `master_replid`: who keeps something for its state (leases) is told by a number that grows.

use super::address::{Address, Deployment, Host};
use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// For a sentinel to answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// A primary, wherever it is.
#[derive(Debug)]
pub(super) struct Primary {
    address: Address,
    /// Who it was last.
    known: Mutex<Known>,
    changes: AtomicU64,
}

#[derive(Debug)]
struct Known {
    host: Host,
    /// Its `run_id` and `master_replid`.
    ids: [Option<String>; 2],
}

impl Primary {
    pub(super) fn new(address: Address, host: Host) -> Self {
        let known = Mutex::new(Known { host, ids: [None, None] });
        Self { address, known, changes: AtomicU64::new(0) }
    }

    pub(super) fn address(&self) -> String {
        self.known.lock().expect("nobody panics with it").host.to_string()
    }

    /// How often it has been another server, or another run of it, than before.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// A client for it, wherever it is now.
    pub(super) async fn find(&self) -> Result<Client, String> {
        if let Deployment::Sentinel { name } = &self.address.deployment {
            let host = self.ask_sentinels(name).await?;
            self.known.lock().expect("nobody panics with it").host = host;
        }
        let host = self.known.lock().expect("nobody panics with it").host.clone();
        client(&self.address, &host).map_err(|error| error.to_string())
    }

    /// Who the primary is by now, if sentinels say that it is another. Who does not answer says nothing.
    pub(super) async fn successor(&self) -> Option<String> {
        let Deployment::Sentinel { name } = &self.address.deployment else { return None };
        let host = self.ask_sentinels(name).await.ok()?;
        let known = self.known.lock().expect("nobody panics with it");
        (host != known.host).then(|| host.to_string())
    }

    async fn ask_sentinels(&self, name: &str) -> Result<Host, String> {
        let mut why = String::new();
        for sentinel in &self.address.hosts {
            let asked = ask_sentinel(&self.address, sentinel, name);
            match tokio::time::timeout(PATIENCE, asked).await {
                Ok(Ok(host)) => return Ok(host),
                Ok(Err(error)) => why = format!("sentinel {sentinel}: {error}"),
                Err(_) => why = format!("sentinel {sentinel} did not answer within {PATIENCE:?}"),
            }
        }
        Err(why)
    }

    /// Looks at who is on the other end of a new connection.
    pub(super) async fn meet(&self, connection: &mut MultiplexedConnection) -> Result<(), String> {
        let info = redis::cmd("INFO");
        let asked = connection.send_packed_command(&info);
        let told = tokio::time::timeout(PATIENCE, asked).await;
        let Ok(told) = told else { return Err(format!("no answer to INFO within {PATIENCE:?}")) };
        // Who may not ask `INFO` cannot tell one server from another: each connection may be to a new one.
        let text = told.ok().and_then(|value| redis::from_redis_value::<String>(value).ok());
        let Some(text) = text else {
            self.changes.fetch_add(1, Ordering::AcqRel);
            return Ok(());
        };
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        if field("role") == Some("slave") {
            return Err(format!("{} is a replica, and no primary", self.address()));
        }
        let mut known = self.known.lock().expect("nobody panics with it");
        let ids = ["run_id", "master_replid"].map(|name| field(name).map(str::to_owned));
        if ids != known.ids {
            known.ids = ids;
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

async fn ask_sentinel(address: &Address, sentinel: &Host, name: &str) -> Result<Host, String> {
    let credentials = address.sentinel.clone();
    let as_watcher = Address { credentials, database: 0, ..address.clone() };
    let client = client(&as_watcher, sentinel).map_err(|error| error.to_string())?;
    let connected = client.get_multiplexed_async_connection().await;
    let mut connection = connected.map_err(|error| error.to_string())?;
    let mut question = redis::cmd("SENTINEL");
    question.arg("get-master-addr-by-name").arg(name);
    let answer = question.query_async::<Option<(String, u16)>>(&mut connection).await;
    match answer.map_err(|error| error.to_string())? {
        Some((name, port)) => Ok(Host { name, port }),
        None => Err(format!("it knows no primary called `{name}`")),
    }
}

/// A client for one server.
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
    // Needs no permission that a limiter has no use for.
    let settings = settings.set_skip_set_lib_name();
    Ok(server.into_connection_info()?.set_redis_settings(settings))
}
