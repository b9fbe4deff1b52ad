//! TLS and client certificates, with certificates that are made here.

use crate::desk::{Directory, PATIENCE, Peer, Served, secs, start};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use tidegate_server::config::TlsConfig;
use tidegate_server::listen::Running;

/// An authority, and what it has signed.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names are good names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("there is randomness");
        Self(CertifiedIssuer::self_signed(params, key).expect("it can sign"))
    }

    fn certificate(&self) -> (String, String) {
        let key = KeyPair::generate().expect("there is randomness");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a good name");
        let signed = params.signed_by(&key, &self.0).expect("it can sign");
        (signed.pem(), key.serialize_pem())
    }

    fn client(&self, certificate: Option<&(String, String)>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("it is one");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("there are versions")
            .with_root_certificates(roots);
        Arc::new(match certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("it is a key");
                let chain = vec![certificate.expect("it is one")];
                builder.with_client_auth_cert(chain, key).expect("they go together")
            }
        })
    }
}

fn serve(authority: &Authority, directory: &Directory, clients: Option<&Authority>) -> Served {
    let (cert, key) = authority.certificate();
    let (cert, key) = (directory.write("cert.pem", &cert), directory.write("key.pem", &key));
    let client_ca = clients.map(|clients| directory.write("clients.pem", &clients.0.pem()));
    start(|config| config.server.tls = Some(TlsConfig { cert, key, client_ca }))
}

fn connect(
    address: Option<SocketAddr>,
    client: Arc<ClientConfig>,
) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let stream = TcpStream::connect(address.expect("it listens"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let name = ServerName::try_from("localhost").expect("a good name");
    let connection = ClientConnection::new(client, name).expect("it is configured");
    Ok(StreamOwned::new(connection, stream))
}

fn ping(running: &Running, client: Arc<ClientConfig>) -> std::io::Result<String> {
    let mut stream = connect(running.addresses.resp, client)?;
    stream.write_all(b"PING\r\n")?;
    let mut said = [0; 7];
    stream.read_exact(&mut said)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn resp_is_spoken_over_tls_and_nothing_is_said_to_who_does_not_speak_it() {
    let (authority, directory) = (Authority::new(), Directory::new());
    let running = serve(&authority, &directory, None);
    assert_eq!(ping(&running, authority.client(None)).unwrap(), "+PONG\r\n");
    let others = Authority::new();
    assert!(ping(&running, others.client(None)).is_err(), "an unknown authority was believed");
    let mut plain = Peer::resp(&running);
    plain.say("PING\r\n");
    let heard = plain.rest().expect("it is cut off");
    assert!(!heard.windows(4).any(|word| word == b"PONG"), "{heard:?}");
    running.stop().unwrap();
}

#[test]
fn t44_a_handshake_that_stops_is_given_up() {
    let (authority, directory) = (Authority::new(), Directory::new());
    let running = serve(&authority, &directory, None);
    let at = running.addresses;
    std::thread::scope(|scope| {
        for address in [at.resp, at.http, at.grpc] {
            scope.spawn(move || {
                // A record that says it is a long handshake, and then one byte and another.
                let mut peer = Peer::new(address);
                peer.say([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]);
                let took = peer.drip(&[0], std::time::Duration::from_millis(200));
                assert!(took < secs(4), "it may take {took:?}");
            });
        }
    });
    assert_eq!(ping(&running, authority.client(None)).unwrap(), "+PONG\r\n");
    running.stop().unwrap();
}

#[test]
fn http_is_spoken_over_tls_many_times_and_ends_with_a_goodbye() {
    let (authority, directory) = (Authority::new(), Directory::new());
    let running = serve(&authority, &directory, None);
    let mut stream = connect(running.addresses.http, authority.client(None)).unwrap();
    let body = r#"{"rule":"1000/s","key":"a"}"#;
    let ask = format!(
        "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(ask.repeat(100).as_bytes()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).expect("it says goodbye as TLS has it");
    assert_eq!(heard.matches("HTTP/1.1 200 OK\r\n").count(), 101, "{heard}");
    running.stop().unwrap();
}

#[test]
fn who_must_have_a_certificate_is_refused_without_one() {
    let (authority, clients, directory) = (Authority::new(), Authority::new(), Directory::new());
    let running = serve(&authority, &directory, Some(&clients));
    let good = clients.certificate();
    let foreign = Authority::new().certificate();
    assert!(ping(&running, authority.client(None)).is_err(), "without a certificate");
    assert!(ping(&running, authority.client(Some(&foreign))).is_err(), "with another's");
    assert_eq!(ping(&running, authority.client(Some(&good))).unwrap(), "+PONG\r\n");
    running.stop().unwrap();
}
