//! TLS handshakes.

use crate::config::ServerConfig;
use crate::net::Wire;
use crate::tls::Alpn;
use tokio_rustls::TlsAcceptor;

/// Returns the acceptor for a listener's connections; `None` if it does not use TLS. RESP has no ALPN protocol name.
pub(super) fn acceptor(config: &ServerConfig, wire: Wire) -> Option<TlsAcceptor> {
    let alpn = match wire {
        Wire::Resp => Alpn::None,
        Wire::Http | Wire::Admin => Alpn::Http1,
        Wire::Grpc => Alpn::Http2,
    };
    let tls = config.tls_of(wire)?;
    Some(TlsAcceptor::from(tls.credentials.server_config(alpn)))
}
