//! Settings of `[server]` from the command line.
//!
//! Always   A flag overrides the file, at the start and at every reload. A reload does not report an overridden setting as
//!          changed.

use super::listener::ListenAddr;
use super::server::{SNAPSHOT_EVERY, ServerConfig, SnapshotConfig};
use std::path::PathBuf;

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
