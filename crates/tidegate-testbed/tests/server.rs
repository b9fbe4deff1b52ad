//! One server does what its methods say.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use tidegate_testbed::{Client, PATIENCE, RedisServer, Reply, eventually};

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.into())
}

#[test]
fn a_server_returns_over_tcp_the_value_that_the_testbed_set() {
    let server = RedisServer::start();
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}/", server.port()));
    assert_eq!(server.command(&["SET", "k", "v"]), ok());
    let mut client = Client::connect(server.address()).unwrap();
    assert_eq!(client.command(&["GET", "k"]).unwrap(), bulk("v"));
    assert_eq!(client.command(&["GET", "nothing"]).unwrap(), Reply::Nil);
    assert!(matches!(client.command(&["GET"]).unwrap(), Reply::Error(_)));
}

#[test]
fn a_server_that_is_dropped_leaves_neither_a_process_nor_files() {
    let server = RedisServer::start();
    let address = server.address();
    let files = server.command(&["CONFIG", "GET", "dir"]).field("dir").unwrap();
    assert!(Path::new(&files).is_dir());
    drop(server);
    let refused = TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert!(!Path::new(&files).exists());
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let server = thread::spawn(RedisServer::start).join().unwrap();
    assert_eq!(server.command(&["SET", "k", "v"]), ok());
    assert!(server.is_running());
}

#[test]
fn a_restarted_server_has_the_same_port_and_no_data() {
    let server = RedisServer::start();
    let address = server.address();
    server.command(&["SET", "k", "v"]);
    server.kill();
    assert!(!server.is_running());
    assert!(server.try_command(&["PING"]).is_err());
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    server.restart();
    assert_eq!(server.address(), address);
    assert_eq!(Client::connect(address).unwrap().command(&["GET", "k"]).unwrap(), Reply::Nil);
}

#[test]
fn an_append_only_server_keeps_its_data_when_it_is_killed() {
    let server = RedisServer::builder().append_only().start();
    server.command(&["SET", "k", "v"]);
    server.restart();
    assert_eq!(server.command(&["GET", "k"]), bulk("v"));
}

#[test]
fn a_paused_server_accepts_connections_and_does_not_reply() {
    let server = RedisServer::start();
    server.pause();
    assert!(server.is_running());
    let address = server.address();
    let asked = thread::spawn(move || Client::connect(address)?.command(&["PING"]));
    TcpStream::connect(address).expect("the system accepts");
    assert!(!asked.is_finished());
    server.resume();
    assert_eq!(asked.join().unwrap().unwrap(), Reply::Simple("PONG".to_owned()));
}

#[test]
fn an_option_takes_effect() {
    let server = RedisServer::builder().option("maxmemory-policy", "allkeys-lru").start();
    let policy = server.command(&["CONFIG", "GET", "maxmemory-policy"]);
    assert_eq!(policy.field("maxmemory-policy").unwrap(), "allkeys-lru");
}

#[test]
#[should_panic(expected = "Bad directive")]
fn a_server_that_does_not_start_fails_with_its_log() {
    RedisServer::builder().option("no-such-option", "1").start();
}

#[test]
fn a_replica_follows_its_primary() {
    let primary = RedisServer::start();
    primary.command(&["SET", "early", "v"]);
    let replica = RedisServer::builder().replica_of(&primary).start();
    assert_eq!(replica.command(&["GET", "early"]), bulk("v"));
    primary.command(&["SET", "late", "v"]);
    eventually("it is replicated", PATIENCE, || replica.command(&["GET", "late"]) == bulk("v"));
    assert!(replica.command(&["SET", "k", "v"]).text().starts_with("READONLY"));
}

#[test]
fn users_need_their_password_and_cannot_lock_out_the_testbed() {
    let limiter = "user limiter on >secret ~* +@all";
    let server = RedisServer::builder().acl(limiter).acl("user default off").start();
    let mut client = Client::connect(server.address()).unwrap();
    assert!(client.command(&["PING"]).unwrap().text().starts_with("NOAUTH"));
    let wrong = client.command(&["AUTH", "limiter", "guess"]).unwrap();
    assert!(wrong.text().starts_with("WRONGPASS"));
    assert_eq!(client.command(&["AUTH", "limiter", "secret"]).unwrap(), ok());
    assert_eq!(client.command(&["SET", "k", "v"]).unwrap(), ok());
    assert_eq!(server.command(&["GET", "k"]), bulk("v"));
}

#[test]
fn a_client_that_trusts_the_authority_connects_over_tls() {
    let server = RedisServer::builder().tls().start();
    assert_eq!(server.url(), format!("rediss://127.0.0.1:{}/", server.port()));
    server.command(&["SET", "k", "v"]);
    let cli = |authority: &Path| {
        let mut cli = Command::new("redis-cli");
        cli.args(["-p", &server.port().to_string(), "--tls", "--cacert"]);
        cli.arg(authority).args(["GET", "k"]).output().expect("it comes with redis-server")
    };
    assert_eq!(cli(&server.ca_path()).stdout, b"v\n");
    let stranger = RedisServer::builder().tls().start();
    assert_ne!(cli(&stranger.ca_path()).stdout, b"v\n");
}
