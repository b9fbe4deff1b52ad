//! `tidegate bench` against the real server, and against faulty servers.
#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "another process runs on the real clock")]

mod errors;
mod honest;
mod server;

use serde_json::Value;
use server::{Server, bench, measure};

/// Asserts that the counts of sent, unsent, answered and lost requests add up to `due`, and the
/// counts of the kinds of replies to `answered`.
fn add_up(measured: &Value, due: u64) {
    let number =
        |name: &str| measured[name].as_u64().unwrap_or_else(|| panic!("{name}: {measured}"));
    assert_eq!(number("sent") + number("unsent"), due, "{measured}");
    assert_eq!(number("answered") + number("lost"), number("sent"), "{measured}");
    let replies = number("allowed") + number("denied") + number("errors");
    assert_eq!(replies, number("answered"), "{measured}");
}

#[test]
fn resp_counts_add_up() {
    let server = Server::start();
    let (measured, code) = measure(&[&server.resp, "--rate", "500", "--duration", "1", "-c", "3"]);
    add_up(&measured, 500);
    assert_eq!((code, &measured["errors"], &measured["loop"]), (0, &0.into(), &"open".into()));
    // The default command allows a burst of 16 per key, so most requests of one key are denied.
    let (measured, _) = measure(&[&server.resp, "--rate", "500", "--duration", "1", "--keys", "1"]);
    add_up(&measured, 500);
    assert!(measured["denied"].as_u64() > Some(400), "{measured}");
}

#[test]
fn a_named_limit_can_be_checked_over_every_protocol() {
    let server = Server::start();
    let grpc = ["--domain", "edge", "--descriptor", "user={key}"];
    let limit = ["--limit", "five"];
    let runs: [(&str, &[&str]); 3] = [
        (&server.resp, &limit),
        (&format!("http://{}", server.http), &limit),
        (&format!("grpc://{}", server.grpc), &grpc),
    ];
    for (target, words) in runs {
        let flags = [target, "--rate", "400", "--duration", "1", "--keys", "10", "--pipeline", "4"];
        let (measured, code) = measure(&[&flags, words].concat());
        add_up(&measured, 400);
        assert_eq!((code, &measured["errors"]), (0, &0.into()), "{measured}");
        // Five per hour for each of ten keys; the test request, which is not counted, uses one of them.
        let allowed = measured["allowed"].as_u64();
        assert!(allowed >= Some(40) && allowed <= Some(50), "{target}: {measured}");
        server.reset_keys();
    }
}

#[test]
fn a_closed_loop_sends_as_fast_as_replies_arrive() {
    let server = Server::start();
    for target in [server.resp.clone(), format!("http://{}", server.http)] {
        let flags = [&*target, "--rate", "max", "--duration", "1", "-c", "2", "-p", "8"];
        let (measured, code) = measure(&flags);
        add_up(&measured, measured["sent"].as_u64().expect("the count is a number"));
        assert_eq!((code, &measured["asked_per_second"]), (0, &Value::Null));
        assert!(measured["answered"].as_u64() > Some(1_000), "{measured}");
        assert_eq!(measured["lost"], 0, "{measured}");
    }
}

#[test]
fn the_report_has_figures_and_a_histogram() {
    let server = Server::start();
    let (out, err, code) = bench(&[&server.resp, "--rate", "200", "--duration", "1"]);
    assert_eq!((err.as_str(), code), ("", 0));
    for text in ["requested   200/s", "answered    200: 200 allowed", "p99.9", "open loop", "#"] {
        assert!(out.contains(text), "{text} in {out}");
    }
    let (out, _, _) =
        bench(&[&server.resp, "--rate", "200", "--duration", "1", "--format", "short"]);
    assert_eq!(out.lines().count(), 1, "{out}");
    let (out, _, _) = bench(&[&server.resp, "--rate", "max", "--duration", "1", "-c", "1"]);
    assert!(out.contains("Closed loop: while the server stalls, no requests are sent"), "{out}");
}

/// The progress line is replaced each second.
#[test]
fn progress_is_shown_on_a_terminal() {
    let server = Server::start();
    let (program, target) = (env!("CARGO_BIN_EXE_tidegate"), &server.resp);
    let line = format!("{program} bench {target} --rate 100 --duration 3 --format short");
    // `script` runs a command in a new terminal; Debian always has it.
    let mut script = std::process::Command::new("script");
    let output = script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).output();
    let output = output.expect("`script` is installed: apt-get install bsdutils");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    let lines: Vec<&str> = shown.split("\r\u{1b}[K").skip(1).collect();
    assert!(lines.len() >= 2, "two progress lines in three seconds: {shown:?}");
    let second = |line: &&str| line.split(" s: ").next().and_then(|text| text.trim().parse().ok());
    let seconds: Vec<u32> = lines.iter().filter_map(second).collect();
    assert!(seconds.len() == lines.len() && seconds.is_sorted(), "{shown:?}");
    for line in &lines {
        assert!(line.contains(" replies, ") && line.contains(" per second, 0 errors"), "{shown:?}");
    }
    // The result follows on a line of its own.
    assert!(lines[lines.len() - 1].contains('\n'), "{shown:?}");
}
