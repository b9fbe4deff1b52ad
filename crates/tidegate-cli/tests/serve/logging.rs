//! A log that cannot be written or is not read, and clients that cause many log lines, stop no decision, signal or snapshot.

use crate::daemon::{Daemon, Directory, PATIENCE, Peer, eventually};
use std::io::{BufRead, BufReader, PipeReader, Read, Write, pipe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CHECK: &str = "TIDE.CHECK a key";

/// Returns log outputs that cannot be written: a name, the shell command that sets it up, and the standard error.
fn unwritable() -> [(&'static str, &'static str, Stdio); 2] {
    [
        ("the reader of the pipe has ended", "", without_reader()),
        ("the disk is full", "exec 2>/dev/full;", Stdio::null()),
    ]
}

fn without_reader() -> Stdio {
    let (reader, writer) = pipe().expect("the system has pipes");
    drop(reader);
    writer.into()
}

/// Returns the read end and the write end of a full pipe. Writing to it blocks until it is read.
fn stalled() -> (PipeReader, Stdio) {
    let (reader, mut writer) = pipe().expect("the system has pipes");
    // The capacity of a pipe on Linux. If it were smaller, this write would block.
    writer.write_all(&vec![b'x'; 64 << 10]).expect("the pipe is empty");
    (reader, writer.into())
}

/// Writes a configuration with its snapshot in a separate directory, and returns the paths of both.
fn configured(directory: &Directory) -> (PathBuf, PathBuf) {
    let state = directory.0.join("state");
    std::fs::create_dir(&state).expect("the directory is new");
    let text = "[server.snapshot]\npath = \"state/snapshot\"\nevery = \"100ms\"\n[limits.a]\nrule = \"1000/day\"\n";
    (directory.write("t.toml", text), state)
}

/// Returns the value of a metric.
fn metric(daemon: &Daemon, name: &str) -> u64 {
    let text = daemon.get("admin", "/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Starts a new server that can log, and returns the remaining count of the key.
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
        let good = std::fs::read_to_string(&config).expect("the file was just written");
        directory.write("t.toml", "[limits.a]\nrule = \"1/fortnight\"\n");
        daemon.signal("HUP");
        eventually(what, PATIENCE, || metric(&daemon, "tidegate_config_stale") == 1);
        directory.write("t.toml", &good);
        daemon.signal("HUP");
        eventually(what, PATIENCE, || metric(&daemon, "tidegate_config_stale") == 0);
        std::fs::remove_dir_all(&state).expect("the directory exists");
        let failures = r#"tidegate_snapshots_total{result="error"}"#;
        eventually(what, PATIENCE, || metric(&daemon, failures) > 1);
        assert_eq!(daemon.connect().five(CHECK), (true, 999), "{what}");
        let lost = r#"tidegate_log_lines_dropped_total{reason="unwritable"}"#;
        eventually(what, PATIENCE, || metric(&daemon, lost) > 0);
        std::fs::create_dir(&state).expect("the directory was removed");
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
        assert_eq!(metric(&daemon, lost), 0, "{what}: the server has logged no warning");
        // The server checks at the start that there are enough descriptors; the limit is lowered afterwards.
        daemon.limit_descriptors(40);
        let mut peers: Vec<Peer> = (0..120).map(|_| daemon.connect()).collect();
        assert_eq!(peers[0].ask("PING"), "+PONG", "{what}: an accepted connection is served");
        drop(peers);
        eventually(what, PATIENCE, || daemon.connect().ask("PING") == "+PONG");
        // The only warnings are those about connections that could not be accepted.
        eventually(what, PATIENCE, || metric(&daemon, lost) > 0);
        let rejected = r#"tidegate_connections_rejected_total{listener="resp"}"#;
        assert_eq!(metric(&daemon, rejected), 0, "{what}: no connection was over the maximum");
        daemon.signal("TERM");
        assert!(daemon.end().success(), "{what}");
    }
}

/// Sends an HTTP request to the RESP listener, which closes the connection and logs a line.
fn send_http_to_resp(daemon: &Daemon) {
    let mut peer = daemon.connect();
    peer.send("GET\r\n");
    assert_eq!(
        peer.read_to_end().as_deref(),
        Some(&b""[..]),
        "the server closes the connection without an answer"
    );
}

#[test]
fn an_unread_log_blocks_no_request_and_no_shutdown() {
    let directory = Directory::new();
    let (config, _) = configured(&directory);
    let (reader, log) = stalled();
    let daemon = Daemon::start_with_log("", &config, log);
    for _ in 0..2_000 {
        send_http_to_resp(&daemon);
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
    eventually("the server reloads", PATIENCE, || metric(&daemon, reloads) == 1);
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
    std::fs::remove_dir_all(&state).expect("the directory exists");
    daemon.signal("TERM");
    assert_eq!(daemon.end().code(), Some(2), "the last snapshot cannot be written");
}

/// Returns the number of HTTP requests on the RESP port that a log line reports.
fn events(line: &str) -> u64 {
    if !line.contains("an HTTP request on the RESP port") {
        return 0;
    }
    let more = line.split_once("… and ").and_then(|(_, rest)| rest.split_once(" more"));
    more.map_or(1, |(number, _)| number.parse().expect("the count is a number"))
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
    (0..OFFENCES).for_each(|_| send_http_to_resp(&daemon));
    let repeated = metric(&daemon, r#"tidegate_log_lines_dropped_total{reason="repeated"}"#);
    assert!(repeated > OFFENCES / 2, "{repeated}");
    daemon.signal("TERM");
    assert!(daemon.end().success());
    let lines: Vec<String> = lines.join().expect("the thread does not panic");
    let reported: u64 = lines.iter().map(|line| events(line)).sum();
    assert_eq!(reported, OFFENCES, "{lines:#?}");
    assert!(lines.len() < 200, "{} lines", lines.len());
}

/// The log then has the address of the listener.
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
            .expect("the server starts");
        let log = BufReader::new(child.stderr.take().expect("the output is piped"));
        let line = log.lines().map_while(Result::ok).find(|line| line.contains("resp=Some("));
        let place =
            line.as_deref().and_then(|line| line.split_once("resp=Some(")?.1.split_once(')'));
        let place = place.unwrap_or_else(|| panic!("{before} {line:?}")).0;
        let mut peer = Peer::new(place.parse().ok());
        assert_eq!(peer.ask("PING"), "+PONG", "{before}");
        child.kill().expect("the server runs");
        child.wait().expect("the server ends");
    }
}

/// Printing the banner blocks until the pipe is read; signals are still handled.
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
        .expect("the server starts");
    let mut child = KillOnDrop(child);
    eventually("the server writes snapshots", PATIENCE, || state.join("snapshot").exists());
    let sent = Command::new("kill").args(["-TERM", &child.0.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()));
    eventually("the server ends", PATIENCE, || {
        child.0.try_wait().expect("the process is a child").is_some()
    });
    assert!(child.0.wait().expect("the server has ended").success());
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
        .expect("the server starts");
    let mut child = KillOnDrop(child);
    eventually("the server ends", PATIENCE, || {
        child.0.try_wait().expect("the process is a child").is_some()
    });
    assert_eq!(child.0.wait().expect("the server has ended").code(), Some(2));
    let mut error = String::new();
    let mut stderr = child.0.stderr.take().expect("the output is piped");
    stderr.read_to_string(&mut error).expect("the error is UTF-8");
    let expected =
        "tidegate: TIDEGATE_LOG is `verbose`, but must be off, error, warn, info, debug or trace\n";
    assert_eq!(error, expected);
}

/// Kills the process on drop, if it has not ended.
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
    let says = || daemon.has_logged("`stay_awake` has no effect any more");
    eventually("it warns", PATIENCE, says);
    assert_eq!(daemon.connect().ask("PING"), "+PONG");
}
