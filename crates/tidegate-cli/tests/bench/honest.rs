//! Stalls and slowness of a server appear in the measured latencies.

use crate::server::{ALLOWED, Server, bench, fake, measure};
use crate::{Value, add_up};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

fn latency_ms(measured: &Value, name: &str) -> u64 {
    measured["latency_us"][name].as_u64().expect("the latency is a number") / 1_000
}

/// Starts a server that answers immediately, except for one stall after `after` answers.
fn stalling_server(after: u64, stall: Duration) -> String {
    let answers = Arc::new(AtomicU64::new(0));
    fake(move |mut commands| {
        while commands.next() {
            if answers.fetch_add(1, Ordering::Relaxed) == after {
                let until = Instant::now() + stall;
                while Instant::now() < until {
                    park_timeout(until - Instant::now());
                }
            }
            commands.answer(ALLOWED);
        }
    })
}

#[test]
fn a_stall_delays_every_request_that_was_due_during_it() {
    let server = stalling_server(200, Duration::from_millis(400));
    // One connection for two seconds, a fifth of which is a stall: 200 of 1000 requests wait 200 ms on average.
    let one = ["--rate", "500", "--duration", "2", "--connections", "1"];
    let (measured, code) = measure(&[&[&*server][..], &one].concat());
    add_up(&measured, 1_000);
    assert_eq!((code, &measured["answered"]), (0, &1_000.into()));
    assert!(latency_ms(&measured, "p90") >= 100, "{measured}");
    assert!(latency_ms(&measured, "p99") >= 300, "{measured}");
    assert!(latency_ms(&measured, "max") >= 390, "{measured}");
    assert!(latency_ms(&measured, "p50") < 100, "{measured}");
}

#[test]
fn a_closed_loop_shows_a_stall_only_in_the_maximum() {
    let server = stalling_server(200, Duration::from_millis(400));
    let one = [&*server, "--rate", "max", "--duration", "1", "--connections", "1"];
    let (measured, _) = measure(&one);
    assert!(
        latency_ms(&measured, "p99") < 300,
        "few of the requests were sent during the stall: {measured}"
    );
    assert!(latency_ms(&measured, "max") >= 390, "{measured}");
}

#[test]
fn a_server_below_the_requested_rate_shows_high_latency() {
    let server = fake(|mut commands| {
        while commands.next() {
            park_timeout(Duration::from_millis(20));
            commands.answer(ALLOWED);
        }
    });
    let flags = ["--rate", "200", "--duration", "1", "--connections", "1", "--timeout", "1"];
    let (measured, _) = measure(&[&[&*server][..], &flags].concat());
    add_up(&measured, 200);
    assert!(measured["unsent"].as_u64() > Some(0), "{measured}");
    assert!(measured["achieved_per_second"].as_u64() < Some(60), "{measured}");
    assert!(latency_ms(&measured, "p50") >= 500, "{measured}");
    let (out, _, _) = bench(&[&[&*server][..], &flags].concat());
    assert!(out.contains("The requested rate was not reached"), "{out}");
    assert!(out.contains("Requests without a reply are in the latencies"), "{out}");
}

#[test]
fn an_interrupted_run_prints_its_result() {
    let server = Server::start();
    let child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["bench", &server.resp, "--rate", "500", "--duration", "600", "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    park_timeout(Duration::from_millis(1_500));
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status().expect("`kill` is installed");
    assert!(sent.success());
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(output.status.code(), Some(0));
    let measured: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
    assert_eq!(measured["is_interrupted"], true);
    let answered = measured["answered"].as_u64();
    assert!(answered > Some(100) && answered < Some(5_000), "{measured}");
    assert!(measured["achieved_per_second"].as_u64() > Some(300), "{measured}");
}
