//! TLS credentials: certificates, keys and client authorities, read and checked before any of them is used.
//!
//! Always   A [`Credentials`] that exists is valid: the key belongs to the certificate, and the client authorities are authorities.
//!          It is a part of the configuration, so a reload replaces it together with all other settings, or not at all.
//!          An open connection keeps the credentials of its handshake; the next handshake uses the new ones.

#[cfg(test)]
mod tests;
mod validity;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::fmt;
use std::sync::Arc;
use tidegate::{Span, Timestamp};

/// The time before the expiry of a certificate from which on the server warns.
const SOON: Span = Span::from_secs(7 * 86_400);

/// The certificates and keys of a `[server.tls]` or `[server.admin_tls]` table.
#[derive(Clone)]
pub struct Credentials {
    /// Without a protocol name; a listener adds its own.
    tls: Arc<ServerConfig>,
    http1: Arc<ServerConfig>,
    http2: Arc<ServerConfig>,
    expires: Option<Timestamp>,
}

/// The contents of the PEM files of one TLS table.
#[derive(Clone, Copy)]
pub struct Pem<'a> {
    /// The certificate chain.
    pub certificates: &'a [u8],
    /// The private key of the chain's first certificate.
    pub key: &'a [u8],
    /// The authorities that sign client certificates.
    pub client_authorities: Option<&'a [u8]>,
}

/// Which application protocol a listener offers by ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpn {
    /// None, for RESP: it has no registered name.
    None,
    /// `http/1.1`.
    Http1,
    /// `h2`.
    Http2,
}

/// A PEM file that cannot be used. The message follows the file's name.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate chain cannot be read.
    #[error("has no certificate in PEM form{}", .0.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    Certificate(Option<String>),
    /// The private key cannot be read.
    #[error("has no private key in PEM form: {0}")]
    Key(String),
    /// The key does not belong to the certificate.
    #[error("is not the key of the certificate: {0}")]
    Mismatch(rustls::Error),
    /// The client authorities cannot be read.
    #[error("has no authority for client certificates: {0}")]
    ClientAuthority(String),
}

impl Credentials {
    /// Reads PEM files, and checks that they belong together.
    #[expect(clippy::missing_panics_doc, reason = "ring has ciphers for TLS 1.2 and 1.3")]
    pub fn new(pem: Pem<'_>) -> Result<Self, TlsError> {
        let certificates = certificates(pem.certificates).map_err(TlsError::Certificate)?;
        let expires = validity::earliest_end(&certificates);
        let key = PrivateKeyDer::from_pem_slice(pem.key);
        let key = key.map_err(|error| TlsError::Key(error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("ring has ciphers for TLS 1.2 and 1.3");
        let builder = match pem.client_authorities {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                builder.with_client_cert_verifier(client_verifier(authorities, provider)?)
            }
        };
        let tls = builder.with_single_cert(certificates, key).map_err(TlsError::Mismatch)?;
        let speaking = |protocol: &[u8]| {
            let mut tls = tls.clone();
            tls.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(tls)
        };
        Ok(Self {
            http1: speaking(b"http/1.1"),
            http2: speaking(b"h2"),
            tls: Arc::new(tls),
            expires,
        })
    }

    /// Returns what rustls needs to accept connections with these credentials.
    pub fn server_config(&self, alpn: Alpn) -> Arc<ServerConfig> {
        Arc::clone(match alpn {
            Alpn::None => &self.tls,
            Alpn::Http1 => &self.http1,
            Alpn::Http2 => &self.http2,
        })
    }

    /// Returns the time at which the first certificate of the chain expires; `None` if its date cannot be read.
    pub fn expires(&self) -> Option<Timestamp> {
        self.expires
    }

    /// Returns a warning if a certificate has expired, or will expire within 7 days.
    pub fn expires_soon(&self, now: Timestamp) -> Option<String> {
        let expires = self.expires?;
        if expires <= now {
            let ago = now.since(expires);
            return Some(format!("expired {} ago: clients refuse it", in_days(ago)));
        }
        let left = expires.since(now);
        (left <= SOON).then(|| format!("expires in {}", in_days(left)))
    }
}

/// Formats a time in whole days, rounded down, or in hours if it is less than a day.
fn in_days(span: Span) -> String {
    const HOUR_US: u64 = 3_600_000_000;
    let hours = span.as_micros() / HOUR_US;
    match (hours / 24, hours) {
        (0, 1) => "1 hour".to_owned(),
        (0, hours) => format!("{hours} hours"),
        (1, _) => "1 day".to_owned(),
        (days, _) => format!("{days} days"),
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("expires", &self.expires).finish_non_exhaustive()
    }
}

fn client_verifier(
    pem: &[u8],
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let wrong = |why: Option<String>| {
        TlsError::ClientAuthority(
            why.unwrap_or_else(|| "the file contains no certificate".to_owned()),
        )
    };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in certificates(pem).map_err(wrong)? {
        roots.add(certificate).map_err(|error| wrong(Some(error.to_string())))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|error| wrong(Some(error.to_string())))
}

/// Reads at least one certificate, or returns why there is none.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Option<String>> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|error| Some(error.to_string()))?;
    if read.is_empty() { Err(None) } else { Ok(read) }
}
