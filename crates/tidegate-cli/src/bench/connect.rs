//! Opens connections to the server, with or without TLS.
//!
//! Always   The server's certificate is verified, as real clients do.

use super::target::{Target, Wire};
use anyhow::{Context, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Bytes in both directions.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection with or without TLS.
pub(super) type Socket = Box<dyn Io>;

/// Which certificates to trust, and which one to present.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct TlsFlags {
    /// TLS: PEM file with the trusted certificate authorities [default: those of the system]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// TLS: PEM file with the client certificate, for a server with `client_ca`
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// TLS: PEM file with the private key of the client certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

/// How to speak TLS to a target.
#[derive(Clone)]
pub(super) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl TlsFlags {
    /// Returns the TLS settings for a target, or `None` if its scheme does not use TLS.
    pub(super) fn for_target(&self, target: &Target) -> anyhow::Result<Option<Tls>> {
        if !target.has_tls {
            let is_any = self.ca.is_some() || self.cert.is_some();
            ensure!(
                !is_any,
                "--ca and --cert need a target with TLS: rediss://, https:// or grpcs://"
            );
            return Ok(None);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("the TLS library supports no protocol version")?
            .with_root_certificates(self.roots()?);
        let mut config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let private = PrivateKeyDer::from_pem_file(key)
                    .with_context(|| format!("{} contains no private key", key.display()))?;
                builder.with_client_auth_cert(certificates(cert)?, private).with_context(|| {
                    format!("{} is not the key of {}", key.display(), cert.display())
                })?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = match target.wire {
            Wire::Resp => Vec::new(),
            Wire::Http => vec![b"http/1.1".to_vec()],
            Wire::Grpc => vec![b"h2".to_vec()],
        };
        let name = ServerName::try_from(target.host().to_owned())
            .with_context(|| format!("`{}` is not a valid name in a certificate", target.host()))?;
        Ok(Some(Tls { connector: TlsConnector::from(Arc::new(config)), name }))
    }

    fn roots(&self) -> anyhow::Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        let Some(file) = &self.ca else {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            let none = "the system has no certificate authorities; name a file with --ca";
            ensure!(!roots.is_empty(), none);
            return Ok(roots);
        };
        for certificate in certificates(file)? {
            let context = || format!("{} is not a certificate authority", file.display());
            roots.add(certificate).with_context(context)?;
        }
        Ok(roots)
    }
}

fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let context = || format!("{} contains no certificate", file.display());
    let read = CertificateDer::pem_file_iter(file).with_context(context)?;
    let read: Vec<_> = read.collect::<Result<_, _>>().with_context(context)?;
    ensure!(!read.is_empty(), context());
    Ok(read)
}

/// Connects, with a TLS handshake if the target uses TLS.
pub(super) async fn connect(target: &Target, tls: Option<&Tls>) -> anyhow::Result<Socket> {
    let address = target.address()?;
    let cannot = || format!("cannot connect to {target}; is the server running?");
    let socket = TcpStream::connect(address).await.with_context(cannot)?;
    socket.set_nodelay(true)?;
    let Some(Tls { connector, name }) = tls else { return Ok(Box::new(socket)) };
    let socket = connector.connect(name.clone(), socket).await;
    Ok(Box::new(socket.with_context(|| format!("the TLS handshake with {target} failed"))?))
}
