//! TLS by rustls, with the peer's certificate if it is asked for one.

use crate::config::TlsConfig;
use anyhow::Context;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Reads the files and makes what peers are accepted with; `protocols` are offered by ALPN.
pub(super) fn acceptor(config: &TlsConfig, protocols: &[&[u8]]) -> anyhow::Result<TlsAcceptor> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .context("TLS has no versions")?;
    let builder = match &config.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = rustls::RootCertStore::empty();
            for certificate in certificates(path)? {
                let context = || format!("{} is no authority for clients", path.display());
                roots.add(certificate).with_context(context)?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            let context = || format!("{} has no authority for clients", path.display());
            builder.with_client_cert_verifier(verifier.with_context(context)?)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&config.key)
        .with_context(|| format!("{} has no private key", config.key.display()))?;
    let mut tls = builder
        .with_single_cert(certificates(&config.cert)?, key)
        .context("the certificate and its key do not go together")?;
    tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(TlsAcceptor::from(Arc::new(tls)))
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let context = || format!("{} has no certificate", path.display());
    let certificates = CertificateDer::pem_file_iter(path).with_context(context)?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().with_context(context)?;
    anyhow::ensure!(!certificates.is_empty(), "{} has no certificate", path.display());
    Ok(certificates)
}
