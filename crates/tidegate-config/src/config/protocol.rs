//! The protocols of the four listeners.

use std::fmt;

/// The protocol that a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RESP, the protocol of Redis.
    Resp,
    /// HTTP/1.
    Http,
    /// gRPC, over HTTP/2.
    Grpc,
    /// The admin API and the dashboard, over HTTP/1.
    Admin,
}

impl Protocol {
    /// Returns its name in the configuration and in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Resp => "resp",
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resp => "RESP",
            Self::Http => "HTTP",
            Self::Grpc => "gRPC",
            Self::Admin => "admin",
        })
    }
}
