//! Settings of `[server]` from the command line.
//!
//! Always   A flag overrides the file, at the start and at every reload. A reload does not report an overridden setting as
//!          changed.

use super::{ServerConfig, SnapshotConfig};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Default interval between snapshots.
pub(super) const SNAPSHOT_EVERY: Duration = Duration::from_secs(10);

/// The flags of the command line that override the file.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// The RESP listener.
    pub resp: Option<ListenAddr>,
    /// The HTTP listener.
    pub http: Option<ListenAddr>,
    /// The gRPC listener.
    pub grpc: Option<ListenAddr>,
    /// The admin listener.
    pub admin: Option<ListenAddr>,
    /// The snapshot file.
    pub snapshot: Option<PathBuf>,
    /// Whether clients on other machines may connect without a token.
    pub is_insecure: bool,
}

/// The address of a listener, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenAddr {
    /// The listener is not started.
    Off,
    /// The listener is bound to this address.
    At(SocketAddr),
}

impl CommandLine {
    /// Overrides settings of the file.
    pub fn apply(&self, server: &mut ServerConfig) {
        for (listener, flag) in [
            (&mut server.resp, self.resp),
            (&mut server.http, self.http),
            (&mut server.grpc, self.grpc),
            (&mut server.admin, self.admin),
        ] {
            match flag {
                Some(ListenAddr::At(addr)) => *listener = Some(addr),
                Some(ListenAddr::Off) => *listener = None,
                None => {}
            }
        }
        server.is_insecure |= self.is_insecure;
        if let Some(path) = &self.snapshot {
            let every = server.snapshot.as_ref().map_or(SNAPSHOT_EVERY, |snapshot| snapshot.every);
            server.snapshot = Some(SnapshotConfig { path: path.clone(), every });
        }
    }
}

impl ListenAddr {
    /// Parses an address and a port, or `off`. `default` is the listener's default address.
    ///
    /// # Errors
    ///
    /// If the text is neither. The error says what to write, with `default` as the example.
    pub fn read(text: &str, default: SocketAddr) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let error =
            |_| format!("this is not an address and a port: {}", address_hint(text, default));
        text.parse().map(Self::At).map_err(error)
    }
}

/// Returns what to write instead of a text that is not an address.
pub(super) fn address_hint(text: &str, default: SocketAddr) -> String {
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    match port.parse::<u16>() {
        Ok(port) if host == "*" => {
            format!("write \"0.0.0.0:{port}\" or \"[::]:{port}\" for all interfaces")
        }
        Ok(port) if host.is_empty() || host == "localhost" => format!("write \"127.0.0.1:{port}\""),
        Ok(_) => format!("names are not resolved: write an IP address, such as \"{default}\""),
        Err(_) => format!("write, for example, \"{default}\", or \"off\""),
    }
}
