//! A certificate for one server, signed by its own authority.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::directory::Directory;

/// File name of the authority's certificate in the server's directory.
pub(super) const AUTHORITY: &str = "authority.pem";

/// The names in the server's certificate.
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// Files in the server's directory.
pub(super) struct Certificates {
    pub(super) authority: PathBuf,
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Certificates {
    pub(super) fn make(directory: &Directory) -> Self {
        let mut params =
            CertificateParams::new(Vec::new()).expect("an empty list of names is valid");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A name different from the server's: OpenSSL takes a certificate whose issuer and subject are equal for self-signed.
        params.distinguished_name.push(DnType::CommonName, "testbed authority");
        let key = KeyPair::generate().expect("there is randomness");
        let authority = CertifiedIssuer::self_signed(params, key).expect("it can sign");

        let key = KeyPair::generate().expect("there is randomness");
        let params = CertificateParams::new(NAMES.map(str::to_owned)).expect("the names are valid");
        let certificate = params.signed_by(&key, &authority).expect("it can sign");
        Self {
            authority: directory.write(AUTHORITY, &authority.pem()),
            certificate: directory.write("certificate.pem", &certificate.pem()),
            key: directory.write("key.pem", &key.serialize_pem()),
        }
    }
}
