//! Connections to what is measured, with or without TLS.
//!
//! Always   Over TLS the server's certificate is verified: what is measured is what clients have.

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

/// A connection, whatever is under it.
pub(super) type Socket = Box<dyn Io>;

/// Which certificates are believed, and which one is shown.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct TlsFlags {
    /// TLS: PEM file of the authorities that the server's certificate may be of [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// TLS: PEM file of a certificate to show, where the server asks for one (`client_ca`)
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// TLS: PEM file of its key
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
    /// What the target needs: nothing, unless its scheme says TLS.
    pub(super) fn for_target(&self, target: &Target) -> anyhow::Result<Option<Tls>> {
        if !target.has_tls {
            let is_any = self.ca.is_some() || self.cert.is_some();
            ensure!(!is_any, "{target} is without TLS: write rediss://, https:// or grpcs://");
            return Ok(None);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("TLS has no versions")?
            .with_root_certificates(self.roots()?);
        let mut config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let private = PrivateKeyDer::from_pem_file(key)
                    .with_context(|| format!("{} has no private key", key.display()))?;
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
        let name = ServerName::try_from(target.host().to_owned()).with_context(|| {
            format!("`{}` is not a name that a certificate can have", target.host())
        })?;
        Ok(Some(Tls { connector: TlsConnector::from(Arc::new(config)), name }))
    }

    fn roots(&self) -> anyhow::Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        let Some(file) = &self.ca else {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            let none = "the system has no certificate authorities: name one with --ca";
            ensure!(!roots.is_empty(), none);
            return Ok(roots);
        };
        for certificate in certificates(file)? {
            let context = || format!("{} is not an authority", file.display());
            roots.add(certificate).with_context(context)?;
        }
        Ok(roots)
    }
}

fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let context = || format!("{} has no certificate", file.display());
    let read = CertificateDer::pem_file_iter(file).with_context(context)?;
    let read: Vec<_> = read.collect::<Result<_, _>>().with_context(context)?;
    ensure!(!read.is_empty(), context());
    Ok(read)
}

/// Connects, and shakes hands where there is TLS.
pub(super) async fn connect(target: &Target, tls: Option<&Tls>) -> anyhow::Result<Socket> {
    let address = target.address()?;
    let cannot = || format!("cannot connect to {target}; does the server listen there?");
    let socket = TcpStream::connect(address).await.with_context(cannot)?;
    socket.set_nodelay(true)?;
    let Some(Tls { connector, name }) = tls else { return Ok(Box::new(socket)) };
    let socket = connector.connect(name.clone(), socket).await;
    Ok(Box::new(socket.with_context(|| format!("there is no TLS with {target}"))?))
}
