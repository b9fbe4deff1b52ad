//! Errors of `tidegate bench`: messages and exit codes.

use crate::add_up;
use crate::server::{ALLOWED, Server, bench, fake, fake_bytes, fake_grpc, measure};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn a_refused_connection_is_an_error() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let free = free.expect("a port is free").to_string();
    for target in [free.clone(), format!("http://{free}")] {
        let (out, err, code) = bench(&[&target]);
        assert_eq!((out.as_str(), code), ("", 2));
        assert!(err.contains("cannot connect to") && err.contains(&free), "{err}");
    }
    let grpc = ["--domain", "a", "--descriptor", "b={key}"];
    let (_, err, code) = bench(&[&[&*format!("grpc://{free}")][..], &grpc].concat());
    assert_eq!(code, 2);
    assert!(err.contains("is the server running?"), "{err}");
    let (_, err, code) = bench(&["no.such.host.invalid:1"]);
    assert_eq!(code, 2);
    assert!(err.contains("no.such.host.invalid:1"), "{err}");
}

#[test]
fn an_error_reply_to_the_test_request_ends_the_run() {
    let server = Server::start();
    let http = format!("http://{}", server.http);
    let grpc = format!("grpc://{}", server.resp);
    let bad: [(&[&str], &str); 5] = [
        (&[&server.resp, "--limit", "no such limit"], "answers with an error"),
        (&[&server.resp, "--command", "NOTHING {key}"], "ERR unknown command"),
        (&[&http, "--body", "{\"key\":1}"], "status 400"),
        (&[&http, "--limit", "none"], "status 4"),
        (&[&grpc, "--domain", "a", "--descriptor", "b=c"], "does not answer gRPC"),
    ];
    for (args, message) in bad {
        let (out, err, code) = bench(args);
        assert_eq!((out.as_str(), code), ("", 2), "{args:?}: {err}");
        assert!(err.contains(message), "{args:?}: {err}");
    }
}

#[test]
fn a_token_is_sent_over_every_protocol() {
    let config = "[server.auth]\ntokens = [\"s3cret\"]\nadmin_token = \"other\"\n";
    let server = Server::with(config);
    let grpc = ["--domain", "a", "--descriptor", "b={key}"];
    let http = format!("http://{}", server.http);
    let grpc_target = format!("grpc://{}", server.grpc);
    let runs: [(&str, &[&str]); 3] = [(&server.resp, &[]), (&http, &[]), (&grpc_target, &grpc)];
    for (target, words) in runs {
        let flags = [&[target, "--rate", "50", "--duration", "1"], words].concat();
        let (measured, code) = measure(&[&flags[..], &["--token", "s3cret"]].concat());
        add_up(&measured, 50);
        assert_eq!((code, &measured["errors"]), (0, &0.into()), "{measured}");
        let (_, err, code) = bench(&[&flags[..], &["--token", "wrong"]].concat());
        assert_eq!(code, 2, "{target}: {err}");
        assert!(!err.contains("wrong"), "an error repeats no token: {err}");
        assert_eq!(bench(&flags).2, 2, "{target}: without a token");
    }
}

#[test]
fn every_protocol_works_over_tls() {
    let (server, cert) = Server::with_tls();
    let (cert, key) =
        (cert.display().to_string(), cert.display().to_string().replace("-cert", "-key"));
    let grpc = ["--domain", "edge", "--descriptor", "user={key}"];
    let targets: [(String, &[&str]); 3] = [
        (format!("rediss://{}", server.resp), &[]),
        (format!("https://{}", server.http), &[]),
        (format!("grpcs://{}", server.grpc), &grpc),
    ];
    for (target, words) in targets {
        let flags =
            [&[&*target, "--rate", "200", "--duration", "500ms", "-c", "3"], words].concat();
        let shown = [&flags[..], &["--ca", &cert, "--cert", &cert, "--key", &key]].concat();
        let (measured, code) = measure(&shown);
        add_up(&measured, 100);
        assert_eq!((code, &measured["errors"]), (0, &0.into()), "{target}: {measured}");
        let (_, err, code) = bench(&flags);
        assert_eq!(code, 2, "{target}: the certificate's authority is unknown");
        assert!(err.contains("certificate") || err.contains("--ca"), "{err}");
        let (_, err, code) = bench(&[&flags[..], &["--ca", &cert]].concat());
        assert_eq!(code, 2, "{target}: without a certificate: {err}");
        let plain =
            target.replace("rediss", "resp").replace("https", "http").replace("grpcs", "grpc");
        let flags = [&[&*plain, "--timeout", "2"], words].concat();
        assert_eq!(bench(&flags).2, 2, "{plain}: without TLS");
    }
}

#[test]
fn contradictory_flags_are_errors() {
    let bad: [&[&str]; 12] = [
        &["--rate", "0"],
        &["--rate", "fast"],
        &["--duration", "0"],
        &["--connections", "0"],
        &["--pipeline", "10001"],
        &["--keys", "0"],
        &["--limit", "a", "--rule", "1/s"],
        &["--domain", "a"],
        &["--duration", "10m"],
        &["--duration", "2day"],
        &["ftp://a:1"],
        &["127.0.0.1:1", "--ca", "any.pem"],
    ];
    for args in bad {
        let (out, err, code) = bench(args);
        assert_eq!((out.as_str(), code), ("", 2), "{args:?}");
        assert!(!err.is_empty());
    }
}

#[test]
fn a_server_that_does_not_answer_is_an_error_after_the_timeout() {
    let silent = fake(|mut commands| while commands.next() {});
    let (out, err, code) = bench(&[&silent, "--timeout", "1"]);
    assert_eq!((out.as_str(), code), ("", 2));
    assert!(err.contains("does not answer within 1s"), "{err}");
}

/// Starts a server that allows the first request and answers all later ones with `reply`.
fn after_the_first(reply: &'static str) -> String {
    let answers = Arc::new(AtomicU64::new(0));
    fake(move |mut commands| {
        while commands.next() {
            let is_first = answers.fetch_add(1, Ordering::Relaxed) == 0;
            commands.answer(if is_first { ALLOWED } else { reply });
        }
    })
}

#[test]
fn bench_exits_with_1_if_every_reply_is_an_error() {
    let server = after_the_first("-ERR gone mad\r\n");
    let flags = [&*server, "--rate", "100", "--duration", "1", "-c", "2"];
    let (out, _, code) = bench(&flags);
    assert_eq!(code, 1);
    assert!(out.contains("Every reply was an error."), "{out}");
    assert!(out.contains("first error ERR gone mad"), "{out}");
    let (measured, _) = measure(&[&*after_the_first("-ERR gone mad\r\n"), "--duration", "1"]);
    add_up(&measured, 1_000);
    assert_eq!(measured["errors"], 1_000);
}

#[test]
fn control_characters_of_the_server_are_escaped_in_the_error_of_the_test_request() {
    let http = b"HTTP/1.1 500 Down\r\ncontent-length: 14\r\n\r\n\x1b[2J \x9b31m\ndown";
    let grpc = format!("grpc://{}", fake_grpc(b"no \xc2\x9b31m \xe2\x80\xaeback"));
    let descriptor = ["--domain", "a", "--descriptor", "b={key}"];
    let runs: [(String, &[&str], &str); 5] = [
        (fake_bytes(b"-ERR \x1b[2J \x9b31m\r\n"), &[], r"error: ERR \u001b[2J "),
        (fake_bytes(b"-ERR \x1b[2J\r\n"), &["--token", "t"], r"rejects the token: ERR \u001b[2J"),
        (fake_bytes(b"\x1b[2J\r\n"), &[], r"the reply is not RESP: \u001b[2J"),
        (format!("http://{}", fake_bytes(http)), &[], r"error: status 500: \u001b[2J "),
        (grpc, &descriptor, r"error: grpc-status 13: no \u009b31m \u202eback"),
    ];
    for (target, words, shown) in runs {
        let (out, err, code) = bench(&[&[&*target], words].concat());
        assert_eq!((out.as_str(), code), ("", 2), "{err}");
        assert!(err.contains(shown), "{target}: {err:?}");
        assert_one_visible_line(&err);
    }
}

#[test]
fn control_characters_of_the_server_are_escaped_in_the_report() {
    let reply = "-ERR \u{1b}[2J \u{9b}31m\r\n";
    for format in ["text", "short", "json"] {
        let server = after_the_first(reply);
        let flags = [&*server, "--rate", "20", "--duration", "500ms", "--format", format];
        let (out, err, code) = bench(&flags);
        assert_eq!((err.as_str(), code), ("", 1), "{out}");
        out.lines().for_each(assert_one_visible_line);
        assert_eq!(out.contains(r"ERR \u001b[2J \u009b31m"), format != "short", "{out}");
    }
    let (measured, _) = measure(&[&*after_the_first(reply), "--rate", "20", "--duration", "500ms"]);
    assert_eq!(measured["first_error"], "ERR \u{1b}[2J \u{9b}31m", "JSON keeps the message");
}

fn assert_one_visible_line(text: &str) {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let is_visible = |c: char| !c.is_control() && c != '\u{202e}';
    assert!(line.chars().all(is_visible), "{text:?}");
}

#[test]
fn bench_exits_with_1_if_no_request_is_answered() {
    let server = after_the_first("");
    let flags = [&*server, "--rate", "100", "--duration", "1", "-c", "2", "--timeout", "1"];
    let (out, _, code) = bench(&flags);
    assert_eq!(code, 1);
    assert!(out.contains("No request was answered."), "{out}");
    assert!(out.contains("unanswered  100: 2 sent, 98 never sent"), "{out}");
}

#[test]
fn a_closed_connection_is_reopened() {
    let answers = Arc::new(AtomicU64::new(0));
    let server = fake(move |mut commands| {
        while commands.next() {
            // The server closes the connection at every fiftieth request.
            if answers.fetch_add(1, Ordering::Relaxed) % 50 == 49 {
                return;
            }
            commands.answer(ALLOWED);
        }
    });
    let (measured, code) = measure(&[&server, "--rate", "500", "--duration", "1", "-c", "2"]);
    add_up(&measured, 500);
    assert_eq!((code, &measured["lost"]), (0, &10.into()), "{measured}");
    assert_eq!(measured["first_error"], "the server closed the connection");
}
