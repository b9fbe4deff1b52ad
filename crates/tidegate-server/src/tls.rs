//! Certificates of the tests.

pub(crate) use tidegate_config::tls::Alpn;

#[cfg(test)]
pub(crate) mod tests {
    use crate::config::{TlsConfig, read};
    use std::path::PathBuf;
    use tidegate_testbed::CertificateFiles;

    /// A certificate and its key in a directory.
    pub(crate) struct Files(CertificateFiles);

    impl Files {
        pub(crate) fn new() -> Self {
            Self(CertificateFiles::new())
        }

        pub(crate) fn path(&self, name: &str) -> PathBuf {
            self.0.path(name)
        }

        /// Returns a configuration of TLS with this certificate.
        pub(crate) fn config(&self) -> TlsConfig {
            let file = self.path("t.toml").display().to_string();
            let text = format!("[server.tls]\n{}", self.0.toml());
            read(&text, &file).unwrap().server.tls.unwrap()
        }
    }
}
