//! Self-signed certificates in a directory of their own, for tests of TLS.

use std::path::PathBuf;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use crate::directory::Directory;

/// A directory with a certificate for `localhost` (`cert.pem`) and its key (`key.pem`), deleted on drop.
pub struct CertificateFiles(Directory);

impl CertificateFiles {
    /// Writes a new certificate and its key.
    #[expect(clippy::new_without_default, reason = "it writes files")]
    pub fn new() -> Self {
        let directory = Directory::new();
        let (certificate, key) = self_signed(2040);
        directory.write("cert.pem", &certificate);
        directory.write("key.pem", &key);
        Self(directory)
    }

    /// Returns the path of a file in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the lines of a configuration that name the certificate and the key.
    pub fn toml(&self) -> String {
        let path = |name| self.path(name).display().to_string();
        format!("cert = {:?}\nkey = {:?}\n", path("cert.pem"), path("key.pem"))
    }
}

/// Returns a certificate that expires on the first day of this year, and its key, as PEM.
pub fn self_signed(expiry_year: i32) -> (String, String) {
    let key = KeyPair::generate().expect("there is randomness");
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a good name");
    params.not_after = date_time_ymd(expiry_year, 1, 1);
    (params.self_signed(&key).expect("it can sign").pem(), key.serialize_pem())
}
