//! What the command line says about `[server]`.
//!
//! Always   It comes before the file, at the start and at every reload: what it says is not undone by a file that says
//!          something else, nor taken for a change of the file.

use super::{ServerConfig, SnapshotConfig};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How often a snapshot is written unless told.
pub(super) const SNAPSHOT_EVERY: Duration = Duration::from_secs(10);

/// What is said there, and holds instead of what the file says.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// Where to listen instead.
    pub resp: Option<Place>,
    /// The same.
    pub http: Option<Place>,
    /// The same.
    pub grpc: Option<Place>,
    /// The same.
    pub admin: Option<Place>,
    /// Where debts are kept over a restart.
    pub snapshot: Option<PathBuf>,
    /// Whether others than loopback may come without a token.
    pub is_insecure: bool,
}

/// Where to listen, if at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere.
    Off,
    /// Here.
    At(SocketAddr),
}

impl CommandLine {
    /// Has it hold.
    pub fn apply(&self, server: &mut ServerConfig) {
        for (place, told) in [
            (&mut server.resp, self.resp),
            (&mut server.http, self.http),
            (&mut server.grpc, self.grpc),
            (&mut server.admin, self.admin),
        ] {
            match told {
                Some(Place::At(addr)) => *place = Some(addr),
                Some(Place::Off) => *place = None,
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

impl Place {
    /// Reads an address and a port, or `off`. Of what is neither, the error says what to write, with an example that is right
    /// for a listener whose address is this by default.
    pub fn read(text: &str, default: SocketAddr) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let meant = |_| format!("this is not an address and a port: {}", meant(text, default));
        text.parse().map(Self::At).map_err(meant)
    }
}

/// What to write instead of a text that is no address.
pub(super) fn meant(text: &str, default: SocketAddr) -> String {
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    match port.parse::<u16>() {
        Ok(port) if host == "*" => {
            format!("write \"0.0.0.0:{port}\" or \"[::]:{port}\" for all interfaces")
        }
        Ok(port) if host.is_empty() || host == "localhost" => format!("write \"127.0.0.1:{port}\""),
        Ok(_) => format!("names are not looked up, write an IP address such as \"{default}\""),
        Err(_) => format!("write one such as \"{default}\", or \"off\""),
    }
}
