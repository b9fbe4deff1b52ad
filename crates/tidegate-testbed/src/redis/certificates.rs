//! Certificates for one server, signed by an authority of its own.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::directory::Directory;

/// What the authority's own certificate is called in the server's directory.
pub(super) const AUTHORITY: &str = "authority.pem";

/// How a client may call the server and believe its certificate.
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// Files in the server's directory.
pub(super) struct Certificates {
    pub(super) authority: PathBuf,
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Certificates {
    pub(super) fn make(directory: &Directory) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names are good names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A name that its certificates do not have: OpenSSL takes issuer and subject of one name for one and the same.
        params.distinguished_name.push(DnType::CommonName, "testbed authority");
        let key = KeyPair::generate().expect("there is randomness");
        let authority = CertifiedIssuer::self_signed(params, key).expect("it can sign");

        let key = KeyPair::generate().expect("there is randomness");
        let params = CertificateParams::new(NAMES.map(str::to_owned)).expect("good names");
        let certificate = params.signed_by(&key, &authority).expect("it can sign");
        Self {
            authority: directory.write(AUTHORITY, &authority.pem()),
            certificate: directory.write("certificate.pem", &certificate.pem()),
            key: directory.write("key.pem", &key.serialize_pem()),
        }
    }
}
