//! redis-rs, the Redis client for Rust: both protocols, pipelines, transactions, tokens, and a connection that many tasks share.

use redis::{Client, Connection, ErrorKind, ServerErrorKind, cmd, pipe};
use std::net::SocketAddr;
use tidegate::snapshot::Snapshot;
use tidegate_server::clock::ServerClock;
use tidegate_server::config::{Config, Token};
use tidegate_server::net::{self, Running};
use tidegate_server::server::Server;

/// The reply to `CL.THROTTLE`.
type Five = (i64, i64, i64, i64, i64);

fn start(token: Option<&str>) -> Running {
    let mut config = Config::default();
    let server = &mut config.server;
    server.resp = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    (server.http, server.grpc, server.admin) = (None, None, None);
    server.tokens = token.into_iter().map(Token::new).collect();
    let server = Server::new(config, None, ServerClock::system(), Snapshot::default());
    net::start(server).expect("the server listens")
}

fn client(running: &Running, auth: &str, options: &str) -> Client {
    let address = running.addresses.resp.expect("the server listens");
    Client::open(format!("redis://{auth}{address}/{options}")).expect("the address is valid")
}

fn decides(connection: &mut Connection, name: &str) {
    let throttle = |key: &str, words: &[i64]| cmd("CL.THROTTLE").arg(key).arg(words).to_owned();
    let first: Five = throttle(name, &[15, 30, 60]).query(connection).expect("the server answers");
    assert_eq!(first, (0, 16, 15, -1, 2));
    let slow = format!("{name} slow");
    let all: Five =
        throttle(&slow, &[2, 3, 86_400, 3]).query(connection).expect("the server answers");
    assert_eq!((all.0, all.2), (0, 0));
    let denied: Five =
        throttle(&slow, &[2, 3, 86_400]).query(connection).expect("the server answers");
    assert!(denied.0 == 1 && (28_000..=28_800).contains(&denied.3), "{denied:?}");
    let mut check = cmd("TIDE.CHECK");
    check.arg("5/day").arg(b"\xff\0\r\n").arg("COST").arg(2);
    let (allowed, limit, remaining, _, _): (bool, u64, u64, u64, u64) =
        check.query(connection).expect("the server answers");
    assert!(allowed && limit == 5 && remaining < 5);
    let error = cmd("SET").arg("a").arg("b").query::<()>(connection).expect_err("SET is unknown");
    assert_eq!(error.kind(), ErrorKind::Server(ServerErrorKind::ResponseError));
    assert!(error.to_string().contains("unknown command"), "{error}");
}

fn pipelines(connection: &mut Connection, name: &str) {
    for is_atomic in [false, true] {
        let mut pipe = pipe();
        if is_atomic {
            pipe.atomic();
        }
        for _ in 0..1_000 {
            pipe.cmd("CL.THROTTLE").arg(format!("{name} {is_atomic}")).arg(&[9, 10, 86_400]);
        }
        let answers: Vec<Five> = pipe.query(connection).expect("the server answers");
        let allowed = answers.iter().filter(|answer| answer.0 == 0).count();
        assert_eq!((answers.len(), allowed), (1_000, 10), "{name}, atomic: {is_atomic}");
    }
}

#[test]
fn both_protocols_decide_the_same() {
    let running = start(None);
    for options in ["", "?protocol=resp3"] {
        let client = client(&running, "", options);
        let mut connection = client.get_connection().expect("the client connects");
        decides(&mut connection, options);
        pipelines(&mut connection, options);
    }
    running.stop().expect("the server stops");
}

#[test]
fn a_token_is_sent_as_a_password() {
    let running = start(Some("secret"));
    for auth in [":secret@", "anybody:secret@"] {
        for options in ["", "?protocol=resp3"] {
            let client = client(&running, auth, options);
            let mut connection = client.get_connection().expect("the client connects");
            let pong: String = cmd("PING").query(&mut connection).expect("the server answers");
            assert_eq!(pong, "PONG");
        }
    }
    assert!(client(&running, ":guess@", "").get_connection().is_err());
    let mut anonymous = client(&running, "", "").get_connection().expect("the client connects");
    assert!(cmd("PING").query::<String>(&mut anonymous).is_err());
    running.stop().expect("the server stops");
}

#[test]
fn one_connection_that_many_tasks_share_gives_each_its_own_answer() {
    let running = start(None);
    let client = client(&running, "", "?protocol=resp3");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let answers: Vec<(i64, Five)> = runtime.block_on(async {
        let connection =
            client.get_multiplexed_async_connection().await.expect("the client connects");
        let tasks = (0..500_i64).map(|number| {
            let mut connection = connection.clone();
            tokio::spawn(async move {
                let mut throttle = cmd("CL.THROTTLE");
                throttle.arg(number).arg(number).arg(1).arg(86_400);
                (number, throttle.query_async(&mut connection).await.expect("the server answers"))
            })
        });
        let mut answers = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            answers.push(task.await.expect("the server stops"));
        }
        answers
    });
    for (number, answer) in answers {
        assert_eq!((answer.0, answer.1, answer.2), (0, number + 1, number));
    }
    running.stop().expect("the server stops");
}
