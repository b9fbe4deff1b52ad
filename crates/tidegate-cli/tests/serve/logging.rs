//! The log, when it cannot be written, is not read, or is written to by strangers: decisions, signals and snapshots go on.

use crate::daemon::{Daemon, Directory, PATIENCE, Peer, eventually};
use std::io::{BufRead, BufReader, PipeReader, Read, Write, pipe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CHECK: &str = "TIDE.CHECK a key";

/// Standard errors that cannot be written, each with what a shell does for it.
fn unwritable() -> [(&'static str, &'static str, Stdio); 2] {
    [
        ("its reader has gone", "", without_reader()),
        ("its disk is full", "exec 2>/dev/full;", Stdio::null()),
    ]
}

fn without_reader() -> Stdio {
    let (reader, writer) = pipe().expect("the system has pipes");
    drop(reader);
    writer.into()
}

/// A pipe that is full, and what reads it. Whatever is written to it now waits for that.
fn stalled() -> (PipeReader, Stdio) {
    let (reader, mut writer) = pipe().expect("the system has pipes");
    // The capacity of a pipe on Linux. If it were smaller, this write would block.
    writer.write_all(&vec![b'x'; 64 << 10]).expect("it has room");
    (reader, writer.into())
}

/// A configuration whose snapshot is in a directory of its own.
fn configured(directory: &Directory) -> (PathBuf, PathBuf) {
    let state = directory.0.join("state");
    std::fs::create_dir(&state).expect("it is new");
    let text = "[server.snapshot]\npath = \"state/snapshot\"\nevery = \"100ms\"\n[limits.a]\nrule = \"1000/day\"\n";
    (directory.write("t.toml", text), state)
}

/// The number that a metric has.
fn metric(daemon: &Daemon, name: &str) -> u64 {
    let text = daemon.get("admin", "/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// What remains after a restart, by another process that can log.
fn remaining_after_restart(config: &Path) -> u64 {
    let daemon = Daemon::start("", config, &[]);
    daemon.connect().five("TIDE.PEEK a key COST 0").1
}

#[test]
fn a_log_that_cannot_be_written_stops_no_signal_and_no_snapshot() {
    for (what, before, log) in unwritable() {
        let directory = Directory::new();
        let (config, state) = configured(&directory);
        let daemon = Daemon::start_with_log(before, &config, log);
        let good = std::fs::read_to_string(&config).expect("it was just written");
        directory.write("t.toml", "[limits.a]\nrule = \"1/fortnight\"\n");
        daemon.signal("HUP");
        eventually(what, PATIENCE, || metric(&daemon, "tidegate_config_stale") == 1);
        directory.write("t.toml", &good);
        daemon.signal("HUP");
        eventually(what, PATIENCE, || metric(&daemon, "tidegate_config_stale") == 0);
        std::fs::remove_dir_all(&state).expect("it is there");
        let failures = r#"tidegate_snapshots_total{result="error"}"#;
        eventually(what, PATIENCE, || metric(&daemon, failures) > 1);
        assert_eq!(daemon.connect().five(CHECK), (true, 999), "{what}");
        let lost = r#"tidegate_log_lines_dropped_total{reason="unwritable"}"#;
        eventually(what, PATIENCE, || metric(&daemon, lost) > 0);
        std::fs::create_dir(&state).expect("it is gone");
        daemon.signal("TERM");
        let status = daemon.end();
        assert!(status.success(), "{what}: {status}");
        assert_eq!(remaining_after_restart(&config), 999, "{what}: the last snapshot is written");
    }
}

#[test]
fn without_descriptors_and_without_a_log_the_server_recovers() {
    for (what, before, log) in unwritable() {
        let directory = Directory::new();
        let config = directory.write("t.toml", "[server.caps]\nfirst_byte = \"60s\"\n");
        let before = format!("export TIDEGATE_LOG=warn; {before}");
        let daemon = Daemon::start_with_log(&before, &config, log);
        let lost = r#"tidegate_log_lines_dropped_total{reason="unwritable"}"#;
        assert_eq!(metric(&daemon, lost), 0, "{what}: nothing has gone wrong yet");
        // The server checks at the start that there are enough descriptors; the limit is lowered afterwards.
        daemon.limit_descriptors(40);
        let mut peers: Vec<Peer> = (0..120).map(|_| daemon.connect()).collect();
        assert_eq!(peers[0].ask("PING"), "+PONG", "{what}: who is in is served");
        drop(peers);
        eventually(what, PATIENCE, || daemon.connect().ask("PING") == "+PONG");
        // The only warnings are those about connections that could not be accepted.
        eventually(what, PATIENCE, || metric(&daemon, lost) > 0);
        let rejected = r#"tidegate_connections_rejected_total{listener="resp"}"#;
        assert_eq!(metric(&daemon, rejected), 0, "{what}: none was one too many");
        daemon.signal("TERM");
        assert!(daemon.end().success(), "{what}");
    }
}

/// Is cut off, and the log says so.
fn offend(daemon: &Daemon) {
    let mut peer = daemon.connect();
    peer.say("GET\r\n");
    assert_eq!(peer.rest().as_deref(), Some(&b""[..]), "it is cut off without an answer");
}

#[test]
fn an_unread_log_blocks_no_request_and_no_shutdown() {
    let directory = Directory::new();
    let (config, _) = configured(&directory);
    let (reader, log) = stalled();
    let daemon = Daemon::start_with_log("", &config, log);
    for _ in 0..2_000 {
        offend(&daemon);
    }
    assert_eq!(daemon.connect().five(CHECK), (true, 999));
    for (listener, path, status) in
        [("HTTP", "/v1/authorize", " 204 "), ("admin", "/livez", " 200 ")]
    {
        let answer = daemon.get(listener, path);
        assert!(answer.lines().next().is_some_and(|line| line.contains(status)), "{answer}");
    }
    daemon.signal("HUP");
    let reloads = r#"tidegate_config_reload_total{result="ok"}"#;
    eventually("it reloads", PATIENCE, || metric(&daemon, reloads) == 1);
    daemon.signal("TERM");
    assert!(daemon.end().success());
    drop(reader);
    assert_eq!(remaining_after_restart(&config), 999, "the last snapshot is written");
}

#[test]
fn an_unread_error_does_not_keep_the_process_from_ending() {
    let directory = Directory::new();
    let (config, state) = configured(&directory);
    let (_reader, log) = stalled();
    let daemon = Daemon::start_with_log("", &config, log);
    std::fs::remove_dir_all(&state).expect("it is there");
    daemon.signal("TERM");
    assert_eq!(daemon.end().code(), Some(2), "the last snapshot cannot be written");
}

/// How many events a line of the log stands for, if it is about HTTP on the RESP port.
fn events(line: &str) -> u64 {
    if !line.contains("an HTTP request on the RESP port") {
        return 0;
    }
    let more = line.split_once("… and ").and_then(|(_, rest)| rest.split_once(" more"));
    more.map_or(1, |(number, _)| number.parse().expect("it is a number"))
}

#[test]
fn repeated_events_are_logged_in_a_few_lines_with_a_count() {
    const OFFENCES: u64 = 3_000;
    let directory = Directory::new();
    let config = directory.write("t.toml", "");
    let (reader, log) = pipe().expect("the system has pipes");
    let daemon = Daemon::start_with_log("", &config, log.into());
    let lines =
        std::thread::spawn(|| BufReader::new(reader).lines().map_while(Result::ok).collect());
    (0..OFFENCES).for_each(|_| offend(&daemon));
    let repeated = metric(&daemon, r#"tidegate_log_lines_dropped_total{reason="repeated"}"#);
    assert!(repeated > OFFENCES / 2, "{repeated}");
    daemon.signal("TERM");
    assert!(daemon.end().success());
    let lines: Vec<String> = lines.join().expect("it does not panic");
    let told: u64 = lines.iter().map(|line| events(line)).sum();
    assert_eq!(told, OFFENCES, "{lines:#?}");
    assert!(lines.len() < 200, "{} lines", lines.len());
}

/// Where it listens is then in the log.
#[test]
fn the_server_runs_although_its_banner_cannot_be_printed() {
    for (before, out) in [("exec >/dev/full;", Stdio::null()), ("", without_reader())] {
        let mut child = Command::new("sh")
            .args(["-c", &format!("{before} exec \"$0\" \"$@\"")])
            .args([env!("CARGO_BIN_EXE_tidegate"), "serve", "--http", "off", "--grpc", "off"])
            .args(["--admin", "off", "--resp", "127.0.0.1:0"])
            .stdout(out)
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let log = BufReader::new(child.stderr.take().expect("it is piped"));
        let line = log.lines().map_while(Result::ok).find(|line| line.contains("resp=Some("));
        let place =
            line.as_deref().and_then(|line| line.split_once("resp=Some(")?.1.split_once(')'));
        let place = place.unwrap_or_else(|| panic!("{before} {line:?}")).0;
        let mut peer = Peer::new(place.parse().ok());
        assert_eq!(peer.ask("PING"), "+PONG", "{before}");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }
}

/// Where it listens waits for the reader; signals do not.
#[test]
fn an_unread_banner_does_not_keep_the_server_from_ending() {
    let directory = Directory::new();
    let (config, state) = configured(&directory);
    let (reader, out) = stalled();
    let child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "--http", "off", "--grpc", "off", "--admin", "off"])
        .args(["--resp", "127.0.0.1:0", "--config"])
        .arg(&config)
        .stdout(out)
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut child = KillOnDrop(child);
    eventually("it writes snapshots", PATIENCE, || state.join("snapshot").exists());
    let sent = Command::new("kill").args(["-TERM", &child.0.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()));
    eventually("it ends", PATIENCE, || child.0.try_wait().expect("it is ours").is_some());
    assert!(child.0.wait().expect("it has ended").success());
    drop(reader);
}

#[test]
fn an_unknown_log_level_is_an_error() {
    let child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "serve",
            "--resp",
            "127.0.0.1:0",
            "--http",
            "off",
            "--grpc",
            "off",
            "--admin",
            "off",
        ])
        .env("TIDEGATE_LOG", "verbose")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut child = KillOnDrop(child);
    eventually("it ends", PATIENCE, || child.0.try_wait().expect("it is ours").is_some());
    assert_eq!(child.0.wait().expect("it has ended").code(), Some(2));
    let mut said = String::new();
    let mut stderr = child.0.stderr.take().expect("it is piped");
    stderr.read_to_string(&mut said).expect("it is text");
    let expected =
        "tidegate: TIDEGATE_LOG is `verbose`, but must be off, error, warn, info, debug or trace\n";
    assert_eq!(said, expected);
}

/// Ended with the test, if it has not ended by itself.
struct KillOnDrop(std::process::Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn serve_warns_of_a_setting_without_effect() {
    let directory = Directory::new();
    let config = directory.write("t.toml", "[server]\nstay_awake = \"50us\"\n");
    let daemon = Daemon::start("", &config, &[]);
    let says = || daemon.says("`stay_awake` has no effect any more");
    eventually("it warns", PATIENCE, says);
    assert_eq!(daemon.connect().ask("PING"), "+PONG");
}
