//! The banner, and reloads and shutdowns by signals and file changes.

use crate::daemon::{Daemon, Directory, PATIENCE, eventually};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn an_invalid_file_is_reported_and_the_old_limits_stay() {
    let directory = Directory::new();
    let config = directory.write("t.toml", "[limits.old]\nrule = \"1/day\"\n");
    let daemon = Daemon::start("", &config, &[]);
    let mut peer = daemon.connect();
    assert_eq!(peer.five("TIDE.CHECK old key"), (true, 0));
    directory.write("t.toml", "[limits.new]\nrule = \"2/fortnight\"\n");
    daemon.signal("HUP");
    eventually("the server logs the error", PATIENCE, || {
        daemon.has_logged("not reloaded, the old configuration stays")
    });
    assert!(daemon.has_logged("t.toml:2:"), "the error names the line");
    assert_eq!(peer.five("TIDE.CHECK old key"), (false, 0), "the old limit is still in force");
    directory.write("t.toml", "[limits.old]\nrule = \"1/day\"\n[limits.new]\nrule = \"2/day\"\n");
    daemon.signal("HUP");
    eventually("the server reloads", PATIENCE, || daemon.has_logged("reloaded: 2 limits"));
    assert_eq!(peer.five("TIDE.CHECK new key"), (true, 1));
    assert_eq!(
        peer.five("TIDE.CHECK old key"),
        (false, 0),
        "a limit keeps its counters across a reload"
    );
    daemon.signal("TERM");
    assert!(daemon.end().success());
}

#[test]
fn signals_are_handled_as_soon_as_the_banner_is_printed() {
    let directory = Directory::new();
    let config = directory.write("t.toml", "[limits.a]\nrule = \"1/day\"\n");
    for _ in 0..10 {
        let daemon = Daemon::start("", &config, &[]);
        daemon.signal("HUP");
        eventually("the server reloads", PATIENCE, || daemon.has_logged("reloaded: 1 limits"));
        daemon.signal("TERM");
        assert!(daemon.end().success());
    }
}

#[test]
fn a_watched_file_is_reloaded_when_it_changes() {
    let directory = Directory::new();
    let text = |rule: &str| format!("[server]\nwatch = true\n[limits.a]\nrule = \"{rule}\"\n");
    let config = directory.write("t.toml", &text("1/day"));
    let daemon = Daemon::start("", &config, &[]);
    let mut peer = daemon.connect();
    assert_eq!(peer.five("TIDE.CHECK a key"), (true, 0));
    directory.write("t.toml", &text("1/fortnight"));
    eventually("the server logs the error", PATIENCE, || {
        daemon.has_logged("not reloaded, the old configuration stays")
    });
    directory.write("t.toml", &text("3/day"));
    eventually("the server reloads", PATIENCE, || daemon.has_logged("reloaded: 1 limits"));
    assert_eq!(
        peer.five("TIDE.CHECK a key"),
        (true, 1),
        "the request before the reload is still charged"
    );
    daemon.signal("TERM");
    assert!(daemon.end().success());
}

#[test]
fn files_named_in_the_configuration_are_watched_too() {
    let directory = Directory::new();
    let names = vec!["localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).expect("the system has randomness");
    directory.write("cert.pem", &made.cert.pem());
    directory.write("key.pem", &made.signing_key.serialize_pem());
    directory.write("tokens", "old\n");
    let text = "[server]\nwatch = true\nauth.tokens_file = \"tokens\"\n\
                admin_tls = { cert = \"cert.pem\", key = \"key.pem\" }\n[limits.a]\nrule = \"1/day\"\n";
    let config = directory.write("t.toml", text);
    let daemon = Daemon::start("", &config, &[]);
    let mut peer = daemon.connect();
    assert_eq!(peer.ask("AUTH old"), "+OK");
    directory.write("tokens", "new\n");
    eventually("the old token is no longer valid", PATIENCE, || {
        peer.ask("PING").starts_with("-NOAUTH")
    });
    assert_eq!(peer.ask("AUTH new"), "+OK");
    directory.write("cert.pem", "garbage");
    eventually("the server logs the error", PATIENCE, || {
        daemon.has_logged("cert.pem has no certificate")
    });
    assert!(daemon.has_logged("not reloaded, the old configuration stays"));
    let reloads = || daemon.log().matches("reloaded: 1 limits").count();
    let before = reloads();
    directory.write("cert.pem", &made.cert.pem());
    eventually("the server reloads", PATIENCE, || reloads() > before);
    daemon.signal("TERM");
    assert!(daemon.end().success());
}

/// Like `--config <(make-config)` in a shell.
#[test]
fn a_configuration_from_a_pipe_is_read_once_and_signals_are_handled() {
    let directory = Directory::new();
    let pipe = directory.write("t.toml", "");
    std::fs::remove_file(&pipe).expect("the file was just written");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("`mkfifo` is installed").success());
    let text = "[server]\nwatch = true\n[limits.a]\nrule = \"1/day\"\n";
    let other_end = pipe.clone();
    // Opening a pipe for writing waits for a reader.
    let writer = std::thread::spawn(move || std::fs::write(other_end, text));
    let daemon = Daemon::start("", &pipe, &[]);
    writer.join().expect("the thread does not panic").expect("the server reads the pipe");
    let mut peer = daemon.connect();
    assert_eq!(peer.five("TIDE.CHECK a key"), (true, 0));
    daemon.signal("HUP");
    eventually("the server logs the error", PATIENCE, || daemon.has_logged("it came from a pipe"));
    assert_eq!(peer.five("TIDE.CHECK a key"), (false, 0), "the limit is still in force");
    daemon.signal("TERM");
    assert!(daemon.end().success());
}

/// Opening the pipe would block, because it has no writer.
#[test]
fn a_pipe_in_place_of_a_file_is_rejected_and_signals_are_handled() {
    let directory = Directory::new();
    directory.write("tokens", "old\n");
    let text = "[server]\nauth.tokens_file = \"tokens\"\n[limits.a]\nrule = \"1/day\"\n";
    let config = directory.write("t.toml", text);
    for name in ["tokens", "t.toml"] {
        let daemon = Daemon::start("", &config, &[]);
        let file = directory.0.join(name);
        let contents = std::fs::read(&file).expect("the file was written");
        std::fs::remove_file(&file).expect("the file exists");
        assert!(
            Command::new("mkfifo").arg(&file).status().expect("`mkfifo` is installed").success()
        );
        daemon.signal("HUP");
        eventually("the server logs the error", PATIENCE, || {
            daemon.has_logged("it is a pipe, and only regular files are read")
        });
        assert_eq!(daemon.connect().ask("AUTH old"), "+OK", "the old configuration stays");
        daemon.signal("TERM");
        assert!(daemon.end().success());
        std::fs::remove_file(&file).expect("the file exists");
        std::fs::write(&file, contents).expect("the file can be written");
    }
}

#[test]
fn a_json_log_is_one_object_per_line() {
    let directory = Directory::new();
    let config = directory.write("t.toml", "[limits.a]\nrule = \"1/day\"\n");
    let daemon = Daemon::start("", &config, &["--log", "json"]);
    directory.write("t.toml", "[limits.a]\nrule = \"1/fortnight\"\n");
    daemon.signal("HUP");
    eventually("the server logs the error", PATIENCE, || daemon.has_logged("not reloaded"));
    for line in daemon.log().lines() {
        let event: serde_json::Value = serde_json::from_str(line).expect("each line is JSON");
        assert!(event["level"].is_string() && event["timestamp"].is_string(), "{line}");
        assert!(event["fields"]["message"].is_string(), "{line}");
    }
}

/// The README starts with this command.
#[test]
fn the_banner_lists_addresses_and_three_commands_to_try() {
    let free = "127.0.0.1:0";
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "--resp", free, "--http", free, "--grpc", free, "--admin", free])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let out = BufReader::new(child.stdout.take().expect("standard output is piped"));
    let lines: Vec<String> = out.lines().map_while(Result::ok).take(9).collect();
    child.kill().expect("the server runs");
    child.wait().expect("the server ends");
    let port =
        |place: usize| lines[place].rsplit_once(':').expect("the line has an address").1.to_owned();
    for (place, wire) in [(1, "RESP"), (2, "HTTP"), (3, "gRPC"), (4, "admin")] {
        assert!(lines[place].trim_start().starts_with(wire), "{lines:?}");
        assert_ne!(port(place), "0", "the banner shows the actual port");
    }
    assert_eq!(lines[5], "try");
    let redis_cli = format!("redis-cli -p {} CL.THROTTLE user:1 15 30 60", port(1));
    assert_eq!(lines[6].trim(), redis_cli);
    assert!(lines[7].trim().starts_with("curl ") && lines[7].contains(&port(2)), "{lines:?}");
    assert!(lines[8].contains(&format!("http://127.0.0.1:{}/", port(4))), "{lines:?}");
}
