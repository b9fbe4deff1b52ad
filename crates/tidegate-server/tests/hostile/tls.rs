//! TLS and client certificates. The tests create the certificates.

use crate::frames::{DATA, END_STREAM, HEADERS, PREFACE, SETTINGS, call, complete_frames, stream};
use crate::harness::{Directory, PATIENCE, Peer, TestServer, config, run, secs, start, status};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use tidegate::snapshot::Snapshot;
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{Config, TlsConfig, Token, load, read};
use tidegate_server::server::Server;

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params =
            CertificateParams::new(Vec::new()).expect("a certificate may have no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("the system has randomness");
        Self(CertifiedIssuer::self_signed(params, key).expect("the authority can sign"))
    }

    fn certificate(&self) -> (String, String) {
        let key = KeyPair::generate().expect("the system has randomness");
        let params =
            CertificateParams::new(vec!["localhost".to_owned()]).expect("the name is valid");
        let signed = params.signed_by(&key, &self.0).expect("the authority can sign");
        (signed.pem(), key.serialize_pem())
    }

    fn client(&self, certificate: Option<&(String, String)>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("the certificate is valid");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS versions are supported")
            .with_root_certificates(roots);
        Arc::new(match certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("the key is valid");
                let chain = vec![certificate.expect("the certificate is valid")];
                builder.with_client_auth_cert(chain, key).expect("the certificate matches the key")
            }
        })
    }
}

/// Writes a new certificate and its key, and returns the settings that name the files.
fn renew(authority: &Authority, directory: &Directory, clients: Option<&Authority>) -> String {
    let (cert, key) = authority.certificate();
    directory.write("cert.pem", &cert);
    directory.write("key.pem", &key);
    let client_ca = clients.map(|clients| {
        directory.write("clients.pem", &clients.0.pem());
        "client_ca = \"clients.pem\"\n"
    });
    format!("cert = \"cert.pem\"\nkey = \"key.pem\"\n{}", client_ca.unwrap_or_default())
}

fn files(authority: &Authority, directory: &Directory, clients: Option<&Authority>) -> TlsConfig {
    let text = format!("[server.tls]\n{}", renew(authority, directory, clients));
    let file = directory.0.join("tls.toml").display().to_string();
    read(&text, &file).expect("the file is valid").server.tls.expect("the file configures TLS")
}

/// Returns settings with a certificate of a new authority, in a new directory.
pub(crate) fn tls(client_ca: bool) -> TlsConfig {
    let (authority, directory) = (Authority::new(), Directory::new());
    files(&authority, &directory, client_ca.then_some(&authority))
}

fn serve(authority: &Authority, directory: &Directory, clients: Option<&Authority>) -> TestServer {
    start(|config| config.server.tls = Some(files(authority, directory, clients)))
}

fn connect(
    address: Option<SocketAddr>,
    client: Arc<ClientConfig>,
) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let stream = TcpStream::connect(address.expect("the server listens"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let name = ServerName::try_from("localhost").expect("the name is valid");
    let connection = ClientConnection::new(client, name).expect("the configuration is valid");
    Ok(StreamOwned::new(connection, stream))
}

fn ping(resp: Option<SocketAddr>, client: Arc<ClientConfig>) -> std::io::Result<String> {
    let mut stream = connect(resp, client)?;
    stream.write_all(b"PING\r\n")?;
    let mut reply = [0; 7];
    stream.read_exact(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

#[test]
fn resp_works_over_tls_and_plain_clients_get_no_answer() {
    let (authority, directory) = (Authority::new(), Directory::new());
    let running = serve(&authority, &directory, None);
    assert_eq!(ping(running.addresses.resp, authority.client(None)).unwrap(), "+PONG\r\n");
    let others = Authority::new();
    assert!(
        ping(running.addresses.resp, others.client(None)).is_err(),
        "the client accepted a certificate of an unknown authority"
    );
    let mut plain = Peer::resp(&running);
    plain.send("PING\r\n");
    let received = plain.read_to_end().expect("the server closes the connection");
    assert!(!received.windows(4).any(|word| word == b"PONG"), "{received:?}");
    running.stop().unwrap();
}

// T44
#[test]
fn an_incomplete_handshake_is_aborted_in_time() {
    let (authority, directory) = (Authority::new(), Directory::new());
    let running = start(|config| {
        config.server.tls = Some(files(&authority, &directory, None));
        config.server.admin_tls = config.server.tls.clone();
    });
    let at = running.addresses;
    std::thread::scope(|scope| {
        for address in [at.resp, at.http, at.grpc, at.admin] {
            scope.spawn(move || {
                // The header of a long handshake record, and then single bytes.
                let mut peer = Peer::new(address);
                peer.send([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]);
                let took = peer.drip(&[0], std::time::Duration::from_millis(200));
                assert!(took < secs(4), "the handshake may take {took:?}");
            });
        }
    });
    assert_eq!(ping(running.addresses.resp, authority.client(None)).unwrap(), "+PONG\r\n");
    running.stop().unwrap();
}

#[test]
fn http_works_over_tls_with_many_requests_and_ends_with_close_notify() {
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
    let mut received = String::new();
    stream.read_to_string(&mut received).expect("the server ends the stream with close_notify");
    assert_eq!(received.matches("HTTP/1.1 200 OK\r\n").count(), 101, "{received}");
    running.stop().unwrap();
}

/// Sends a call of the rate limit service over TLS, and returns whether the answer has a message.
fn ask_grpc(grpc: Option<SocketAddr>, client: &ClientConfig) -> std::io::Result<bool> {
    let mut client = client.clone();
    client.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
    let mut tls = connect(grpc, Arc::new(client))?;
    tls.write_all(&[PREFACE, &SETTINGS, &call(stream(0))].concat())?;
    let (mut received, mut piece) = (Vec::new(), [0; 4_096]);
    loop {
        match tls.read(&mut piece)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => received.extend_from_slice(&piece[..count]),
        }
        assert_eq!(tls.conn.alpn_protocol(), Some(&b"h2"[..]));
        let frames =
            complete_frames(&received).0.into_iter().filter(|head| head.stream == stream(0));
        let frames: Vec<_> = frames.collect();
        let is_over =
            |kind: u8, flags: u8| [DATA, HEADERS].contains(&kind) && flags & END_STREAM > 0;
        if frames.iter().any(|head| is_over(head.kind, head.flags)) {
            return Ok(frames.iter().any(|head| head.kind == DATA));
        }
    }
}

/// Sends a check over TLS and returns the status.
fn ask_http(http: Option<SocketAddr>, client: Arc<ClientConfig>) -> std::io::Result<String> {
    let body = r#"{"rule":"1000/s","key":"a"}"#;
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut tls = connect(http, client)?;
    tls.write_all(head.as_bytes())?;
    let mut answer = String::new();
    tls.read_to_string(&mut answer)?;
    Ok(status(&answer).to_owned())
}

#[test]
fn grpc_works_over_tls_and_other_protocols_do_not() {
    let (authority, directory) = (Authority::new(), Directory::new());
    let running = serve(&authority, &directory, None);
    let (at, client) = (running.addresses.grpc, authority.client(None));
    assert!(ask_grpc(at, &client).unwrap(), "the server answers with a message");
    assert!(ask_grpc(at, &Authority::new().client(None)).is_err(), "an unknown authority");
    let mut other = ClientConfig::clone(&client);
    other.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut tls = connect(at, Arc::new(other)).unwrap();
    assert!(tls.write_all(PREFACE).is_err(), "the gRPC listener does not accept HTTP/1");
    running.stop().unwrap();
}

#[test]
fn every_listener_that_needs_a_certificate_refuses_clients_without_one() {
    let (authority, clients, directory) = (Authority::new(), Authority::new(), Directory::new());
    let running = serve(&authority, &directory, Some(&clients));
    let (good, foreign) = (clients.certificate(), Authority::new().certificate());
    let at = running.addresses;
    for certificate in [None, Some(&foreign)] {
        let client = authority.client(certificate);
        assert!(ask_grpc(at.grpc, &client).is_err(), "gRPC");
        assert!(ask_http(at.http, client).is_err(), "HTTP");
    }
    let client = authority.client(Some(&good));
    assert!(ask_grpc(at.grpc, &client).unwrap());
    assert_eq!(ask_http(at.http, client).unwrap(), "200");
    running.stop().unwrap();
}

/// Sends a request to the admin listener over TLS and returns the status.
fn admin(at: SocketAddr, client: Arc<ClientConfig>, head: &str) -> std::io::Result<String> {
    let mut stream = connect(Some(at), client)?;
    stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(status(&answer).to_owned())
}

/// All interfaces; the tests connect through loopback.
const EVERYWHERE: Option<SocketAddr> =
    Some(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)));

fn loopback(address: Option<SocketAddr>) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], address.expect("the server listens").port()))
}

#[test]
fn with_a_certificate_the_admin_listener_needs_neither_token_nor_loopback() {
    let (authority, clients, directory) = (Authority::new(), Authority::new(), Directory::new());
    let running = start(|config| {
        config.server.admin = EVERYWHERE;
        config.server.admin_tls = Some(files(&authority, &directory, Some(&clients)));
    });
    let at = loopback(running.addresses.admin);
    let (good, foreign) = (clients.certificate(), Authority::new().certificate());
    let metrics = "GET /metrics HTTP/1.1\r\nHost: tidegate.example:9091";
    let answer = admin(at, authority.client(Some(&good)), metrics);
    assert_eq!(answer.unwrap(), "200", "any host name is accepted");
    for head in [metrics, "GET /livez HTTP/1.1\r\nHost: localhost"] {
        assert!(admin(at, authority.client(None), head).is_err(), "without a certificate");
        assert!(
            admin(at, authority.client(Some(&foreign)), head).is_err(),
            "with a certificate of an unknown authority"
        );
    }
    let other_site = "POST /v1/reload HTTP/1.1\r\nHost: a.example\r\nOrigin: https://evil.example";
    let answer = admin(at, authority.client(Some(&good)), other_site);
    assert_eq!(answer.unwrap(), "403", "a page in the operator's browser has the certificate too");
    let mut plain = Peer::new(Some(at));
    plain.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let received = plain.read_to_end().expect("the server closes the connection");
    assert!(!received.starts_with(b"HTTP"), "{received:?}");
    assert_eq!(
        Peer::resp(&running).ask("PING"),
        "+PONG",
        "the RESP listener still needs no certificate"
    );
    running.stop().unwrap();
}

#[test]
fn clients_with_a_certificate_need_no_token_also_after_a_reload() {
    let (authority, clients, directory) = (Authority::new(), Authority::new(), Directory::new());
    let mut config = config();
    (config.server.resp, config.server.admin) = (EVERYWHERE, EVERYWHERE);
    config.server.tls = Some(files(&authority, &directory, Some(&clients)));
    config.server.admin_tls = config.server.tls.clone();
    let file = Some(directory.write("t.toml", "[limits.new]\nrule = \"1/s\"\n"));
    let server = Server::new(config, file, ServerClock::system(), Snapshot::default());
    let running = run(server);
    let (resp, good) = (Some(loopback(running.addresses.resp)), clients.certificate());
    assert!(ping(resp, authority.client(None)).is_err(), "without a certificate");
    assert_eq!(ping(resp, authority.client(Some(&good))).unwrap(), "+PONG\r\n");
    running.server.reload().expect("the server still requires certificates");
    assert!(running.server.engine.limits().get("new").is_some());
    assert!(ping(resp, authority.client(None)).is_err(), "without a certificate");
    running.stop().unwrap();
}

#[test]
fn a_certificate_does_not_replace_the_admin_token() {
    let (authority, clients, directory) = (Authority::new(), Authority::new(), Directory::new());
    let running = start(|config| {
        config.server.admin_tls = Some(files(&authority, &directory, Some(&clients)));
        config.server.admin_token = Some(Token::new("hush"));
    });
    let (at, good) = (running.addresses.admin.unwrap(), clients.certificate());
    let head = "GET /metrics HTTP/1.1\r\nHost: localhost";
    assert_eq!(admin(at, authority.client(Some(&good)), head).unwrap(), "401");
    let head = format!("{head}\r\nAuthorization: Bearer hush");
    assert_eq!(admin(at, authority.client(Some(&good)), &head).unwrap(), "200");
    running.stop().unwrap();
}

#[test]
fn resp_clients_without_a_required_certificate_are_refused() {
    let (authority, clients, directory) = (Authority::new(), Authority::new(), Directory::new());
    let running = serve(&authority, &directory, Some(&clients));
    let good = clients.certificate();
    let foreign = Authority::new().certificate();
    assert!(ping(running.addresses.resp, authority.client(None)).is_err(), "without a certificate");
    assert!(
        ping(running.addresses.resp, authority.client(Some(&foreign))).is_err(),
        "with a certificate of an unknown authority"
    );
    assert_eq!(ping(running.addresses.resp, authority.client(Some(&good))).unwrap(), "+PONG\r\n");
    running.stop().unwrap();
}

/// Starts a server with this file, whose listeners all use TLS.
fn serve_file(directory: &Directory, text: &str) -> TestServer {
    let file = directory.write("t.toml", text);
    let Config { server, limits, sources, .. } = load(&file).expect("the file is valid");
    let mut config = config();
    (config.server.tls, config.server.admin_tls) = (server.tls, server.admin_tls);
    (config.server.admin_token, config.limits, config.sources) =
        (server.admin_token, limits, sources);
    run(Server::new(config, Some(file), ServerClock::system(), Snapshot::default()))
}

fn with_tls(tables: &str, rest: &str) -> String {
    let free = ["resp", "http", "grpc", "admin"].map(|wire| format!("{wire} = \"127.0.0.1:0\"\n"));
    let free = free.concat();
    format!("[server]\n{free}[server.tls]\n{tables}\n[server.admin_tls]\n{tables}\n{rest}")
}

/// Returns whether each listener has a certificate of this authority: RESP, HTTP, gRPC and admin.
fn accepted_certificates(
    at: tidegate_server::net::Addresses,
    client: &Arc<ClientConfig>,
) -> [bool; 4] {
    let live = "GET /livez HTTP/1.1\r\nHost: localhost";
    [
        ping(at.resp, Arc::clone(client)).is_ok(),
        ask_http(at.http, Arc::clone(client)).is_ok(),
        ask_grpc(at.grpc, client).is_ok(),
        admin(at.admin.expect("the server listens"), Arc::clone(client), live).is_ok(),
    ]
}

#[test]
fn a_reload_replaces_certificates_and_closes_no_connection() {
    let (before, after, directory) = (Authority::new(), Authority::new(), Directory::new());
    let text = with_tls(&renew(&before, &directory, None), "");
    let running = serve_file(&directory, &text);
    let (old, new) = (before.client(None), after.client(None));
    assert_eq!(
        (
            accepted_certificates(running.addresses, &old),
            accepted_certificates(running.addresses, &new)
        ),
        ([true; 4], [false; 4])
    );
    let mut open = connect(running.addresses.resp, Arc::clone(&old)).unwrap();
    let mut still =
        || open.write_all(b"PING\r\n").and_then(|()| open.read_exact(&mut [0; 7])).is_ok();
    assert!(still());
    renew(&after, &directory, None);
    let needs_restart = running.server.reload().expect("the certificate matches the key");
    assert!(needs_restart.is_empty(), "{needs_restart:?}");
    assert_eq!(
        (
            accepted_certificates(running.addresses, &old),
            accepted_certificates(running.addresses, &new)
        ),
        ([false; 4], [true; 4])
    );
    assert!(still(), "an open connection stays open");
    running.stop().unwrap();
}

#[test]
fn a_reload_with_invalid_certificates_changes_nothing_and_says_why() {
    let (authority, directory) = (Authority::new(), Directory::new());
    let tables = renew(&authority, &directory, None);
    let running = serve_file(&directory, &with_tls(&tables, "[limits.old]\nrule = \"1/s\"\n"));
    directory.write("t.toml", &with_tls(&tables, "[limits.new]\nrule = \"1/s\"\n"));
    let good = std::fs::read_to_string(directory.0.join("cert.pem")).unwrap();
    let (other, _) = authority.certificate();
    for (certificate, why) in
        [("garbage", "cert.pem has no certificate"), (&*other, "key.pem is not the key")]
    {
        directory.write("cert.pem", certificate);
        let refused = running.server.reload().expect_err("the reload fails").to_string();
        assert!(refused.contains(why) && refused.contains("t.toml:"), "{refused}");
        assert_eq!(accepted_certificates(running.addresses, &authority.client(None)), [true; 4]);
        assert!(
            running.server.engine.limits().get("new").is_none(),
            "no part of the new file is active"
        );
    }
    directory.write("cert.pem", &good);
    running.server.reload().expect("the files are valid again");
    assert!(running.server.engine.limits().get("new").is_some());
    running.stop().unwrap();
}

#[test]
fn a_reload_replaces_the_authorities_for_client_certificates() {
    let (authority, directory) = (Authority::new(), Directory::new());
    let (before, after) = (Authority::new(), Authority::new());
    let tables = renew(&authority, &directory, Some(&before));
    let running = serve_file(&directory, &with_tls(&tables, ""));
    let old = authority.client(Some(&before.certificate()));
    let new = authority.client(Some(&after.certificate()));
    assert_eq!(
        (
            accepted_certificates(running.addresses, &old),
            accepted_certificates(running.addresses, &new)
        ),
        ([true; 4], [false; 4])
    );
    directory.write("clients.pem", &after.0.pem());
    running.server.reload().expect("the file has a certificate authority");
    assert_eq!(
        (
            accepted_certificates(running.addresses, &old),
            accepted_certificates(running.addresses, &new)
        ),
        ([false; 4], [true; 4])
    );
    running.stop().unwrap();
}

#[test]
fn only_a_restart_turns_client_certificates_on_or_off() {
    let (authority, clients, directory) = (Authority::new(), Authority::new(), Directory::new());
    let tables = renew(&authority, &directory, Some(&clients));
    let (with, good) = (with_tls(&tables, ""), clients.certificate());
    let without = with.replace("client_ca", "# client_ca");
    for (before, after, is_asked) in [(&with, &without, true), (&without, &with, false)] {
        let running = serve_file(&directory, before);
        directory.write("t.toml", after);
        let needs_restart = running.server.reload().expect("the file is valid");
        assert_eq!(needs_restart, ["tls", "admin_tls"]);
        let anonymous = accepted_certificates(running.addresses, &authority.client(None));
        assert_eq!(anonymous, [!is_asked; 4], "client certificates are required as at the start");
        assert_eq!(
            accepted_certificates(running.addresses, &authority.client(Some(&good))),
            [true; 4]
        );
        running.stop().unwrap();
    }
}
