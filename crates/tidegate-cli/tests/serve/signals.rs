//! What it says when it starts, and what it is told while it runs.

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
    eventually("it says so", PATIENCE, || daemon.says("not reloaded, the old configuration stays"));
    assert!(daemon.says("t.toml:2:"), "and where");
    assert_eq!(peer.five("TIDE.CHECK old key"), (false, 0), "and counts on");
    directory.write("t.toml", "[limits.old]\nrule = \"1/day\"\n[limits.new]\nrule = \"2/day\"\n");
    daemon.signal("HUP");
    eventually("it reloads", PATIENCE, || daemon.says("reloaded: 2 limits"));
    assert_eq!(peer.five("TIDE.CHECK new key"), (true, 1));
    assert_eq!(peer.five("TIDE.CHECK old key"), (false, 0), "counters stay with their name");
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
        eventually("it reloads", PATIENCE, || daemon.says("reloaded: 1 limits"));
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
    eventually("it says so", PATIENCE, || daemon.says("not reloaded, the old configuration stays"));
    directory.write("t.toml", &text("3/day"));
    eventually("it reloads", PATIENCE, || daemon.says("reloaded: 1 limits"));
    assert_eq!(peer.five("TIDE.CHECK a key"), (true, 1), "what was taken stays taken");
    daemon.signal("TERM");
    assert!(daemon.end().success());
}

#[test]
fn files_named_in_the_configuration_are_watched_too() {
    let directory = Directory::new();
    let names = vec!["localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).expect("there is randomness");
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
    eventually("its token is none", PATIENCE, || peer.ask("PING").starts_with("-NOAUTH"));
    assert_eq!(peer.ask("AUTH new"), "+OK");
    directory.write("cert.pem", "garbage");
    eventually("it says so", PATIENCE, || daemon.says("cert.pem has no certificate"));
    assert!(daemon.says("not reloaded, the old configuration stays"));
    let reloads = || daemon.log().matches("reloaded: 1 limits").count();
    let before = reloads();
    directory.write("cert.pem", &made.cert.pem());
    eventually("it reloads", PATIENCE, || reloads() > before);
    daemon.signal("TERM");
    assert!(daemon.end().success());
}

/// As `--config <(make-config)` of a shell.
#[test]
fn a_configuration_from_a_pipe_is_read_once_and_signals_are_handled() {
    let directory = Directory::new();
    let pipe = directory.write("t.toml", "");
    std::fs::remove_file(&pipe).expect("it was just written");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("coreutils").success());
    let text = "[server]\nwatch = true\n[limits.a]\nrule = \"1/day\"\n";
    let other_end = pipe.clone();
    // Opening a pipe for writing waits for a reader.
    let writer = std::thread::spawn(move || std::fs::write(other_end, text));
    let daemon = Daemon::start("", &pipe, &[]);
    writer.join().expect("it does not panic").expect("it is read");
    let mut peer = daemon.connect();
    assert_eq!(peer.five("TIDE.CHECK a key"), (true, 0));
    daemon.signal("HUP");
    eventually("it says so", PATIENCE, || daemon.says("it came from a pipe"));
    assert_eq!(peer.five("TIDE.CHECK a key"), (false, 0), "the limit is still there");
    daemon.signal("TERM");
    assert!(daemon.end().success());
}

/// Whoever opened it would wait for a writer, and there is none.
#[test]
fn a_pipe_in_place_of_a_file_is_rejected_and_signals_are_handled() {
    let directory = Directory::new();
    directory.write("tokens", "old\n");
    let text = "[server]\nauth.tokens_file = \"tokens\"\n[limits.a]\nrule = \"1/day\"\n";
    let config = directory.write("t.toml", text);
    for name in ["tokens", "t.toml"] {
        let daemon = Daemon::start("", &config, &[]);
        let file = directory.0.join(name);
        let contents = std::fs::read(&file).expect("it was written");
        std::fs::remove_file(&file).expect("it is there");
        assert!(Command::new("mkfifo").arg(&file).status().expect("coreutils").success());
        daemon.signal("HUP");
        eventually("it says so", PATIENCE, || {
            daemon.says("it is a pipe, and only regular files are read")
        });
        assert_eq!(daemon.connect().ask("AUTH old"), "+OK", "the old configuration stays");
        daemon.signal("TERM");
        assert!(daemon.end().success());
        std::fs::remove_file(&file).expect("it is there");
        std::fs::write(&file, contents).expect("it can be written");
    }
}

#[test]
fn a_json_log_is_one_object_per_line() {
    let directory = Directory::new();
    let config = directory.write("t.toml", "[limits.a]\nrule = \"1/day\"\n");
    let daemon = Daemon::start("", &config, &["--log", "json"]);
    directory.write("t.toml", "[limits.a]\nrule = \"1/fortnight\"\n");
    daemon.signal("HUP");
    eventually("it says so", PATIENCE, || daemon.says("not reloaded"));
    for line in daemon.log().lines() {
        let said: serde_json::Value = serde_json::from_str(line).expect("it is JSON");
        assert!(said["level"].is_string() && said["timestamp"].is_string(), "{line}");
        assert!(said["fields"]["message"].is_string(), "{line}");
    }
}

/// The first command of the README.
#[test]
fn the_banner_lists_addresses_and_three_commands_to_try() {
    let free = "127.0.0.1:0";
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "--resp", free, "--http", free, "--grpc", free, "--admin", free])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let out = BufReader::new(child.stdout.take().expect("it is piped"));
    let lines: Vec<String> = out.lines().map_while(Result::ok).take(9).collect();
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let port = |place: usize| lines[place].rsplit_once(':').expect("an address").1.to_owned();
    for (place, wire) in [(1, "RESP"), (2, "HTTP"), (3, "gRPC"), (4, "admin")] {
        assert!(lines[place].trim_start().starts_with(wire), "{lines:?}");
        assert_ne!(port(place), "0", "the port that it got");
    }
    assert_eq!(lines[5], "try");
    let redis_cli = format!("redis-cli -p {} CL.THROTTLE user:1 15 30 60", port(1));
    assert_eq!(lines[6].trim(), redis_cli);
    assert!(lines[7].trim().starts_with("curl ") && lines[7].contains(&port(2)), "{lines:?}");
    assert!(lines[8].contains(&format!("http://127.0.0.1:{}/", port(4))), "{lines:?}");
}
