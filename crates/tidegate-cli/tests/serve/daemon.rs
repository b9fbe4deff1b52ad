//! `tidegate serve` as a process, and its clients.

pub(crate) use crate::peer::{Directory, PATIENCE, Peer, eventually};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A `tidegate serve` process, killed on drop.
pub(crate) struct Daemon {
    child: Child,
    /// Addresses of the listeners, by the name that the banner prints.
    addresses: Vec<(String, SocketAddr)>,
    log: Arc<Mutex<String>>,
}

const FREE: &str = "127.0.0.1:0";

impl Daemon {
    /// Starts the server from a shell that runs `before` first.
    pub(crate) fn start(before: &str, config: &Path, args: &[&str]) -> Self {
        let off = ["--http", "off", "--grpc", "off", "--admin", "off", "--resp", FREE];
        let args: Vec<&str> = off.iter().chain(args).copied().collect();
        Self::spawn(before, config, &args, Stdio::piped())
    }

    /// Starts the server with a RESP and an admin listener.
    pub(crate) fn start_with_admin(before: &str, config: &Path) -> Self {
        let on = ["--resp", FREE, "--http", "off", "--grpc", "off", "--admin", FREE];
        Self::spawn(before, config, &on, Stdio::piped())
    }

    /// Starts the server with RESP, HTTP and admin listeners and with `log` as its standard error.
    pub(crate) fn start_with_log(before: &str, config: &Path, log: Stdio) -> Self {
        let on = ["--resp", FREE, "--http", FREE, "--grpc", "off", "--admin", FREE];
        Self::spawn(before, config, &on, log)
    }

    fn spawn(before: &str, config: &Path, args: &[&str], log: Stdio) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", &format!("{before} exec \"$0\" \"$@\"")])
            .args([env!("CARGO_BIN_EXE_tidegate"), "serve", "--config"])
            .arg(config)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the server starts");
        let log = Arc::new(Mutex::new(String::new()));
        if let Some(stderr) = child.stderr.take() {
            let kept = Arc::clone(&log);
            std::thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    let mut log = kept.lock().expect("no thread panics while it holds the lock");
                    log.push_str(&line);
                    log.push('\n');
                }
            });
        }
        let out = BufReader::new(child.stdout.take().expect("standard output is piped"));
        let mut lines = out.lines().map_while(Result::ok);
        let places = lines.by_ref().skip(1).take(4).filter_map(|line| {
            let (name, place) = line.trim().split_once(' ')?;
            Some((name.to_owned(), place.trim().parse().ok()?))
        });
        let addresses: Vec<_> = places.collect();
        let text = || log.lock().expect("no thread panics while it holds the lock").clone();
        assert!(!addresses.is_empty(), "the banner has no addresses: {}", text());
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, addresses, log }
    }

    pub(crate) fn connect(&self) -> Peer {
        Peer::new(self.address("RESP"))
    }

    /// Returns the address of a listener, by the name that the banner prints: `RESP`, `HTTP`, `gRPC`, `admin`.
    pub(crate) fn address(&self, name: &str) -> Option<SocketAddr> {
        self.addresses.iter().find(|(its, _)| its == name).map(|(_, address)| *address)
    }

    /// Sends a `GET` and returns the head and the body of the response.
    pub(crate) fn get(&self, listener: &str, path: &str) -> String {
        let mut peer = Peer::new(self.address(listener));
        peer.send(format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n"));
        String::from_utf8(peer.read_to_end().expect("the server answers"))
            .expect("the response is UTF-8")
    }

    /// Returns whether the log contains this text.
    pub(crate) fn has_logged(&self, what: &str) -> bool {
        self.log.lock().expect("no thread panics while it holds the lock").contains(what)
    }

    /// Returns the whole log.
    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("no thread panics while it holds the lock").clone()
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -{name}");
    }

    /// Lowers the limit of file descriptors of the running server.
    pub(crate) fn limit_descriptors(&self, number: u32) {
        let (id, limit) = (self.child.id().to_string(), format!("--nofile={number}:{number}"));
        let limited = Command::new("prlimit").args(["--pid", &id, &limit]).status();
        assert!(limited.is_ok_and(|status| status.success()), "prlimit {limit}");
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the server runs");
        self.child.wait().expect("the server ends");
    }

    /// Waits until the server ends after a signal, and returns its exit status.
    pub(crate) fn end(mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("the process is a child") {
                return status;
            }
            assert!(Instant::now() < until, "the server does not end");
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Peer {
    /// Returns the reply of `TIDE.CHECK`, `TIDE.PEEK` or `CL.THROTTLE`: whether it allows, and how much remains, with
    /// `u64::MAX` for unknown (-1).
    pub(crate) fn five(&mut self, line: &str) -> (bool, u64) {
        assert_eq!(self.ask(line), "*5", "{line}");
        let numbers: Vec<String> = (0..5).map(|_| self.line()).collect();
        // In redis-cell's reply, 1 means denied.
        let yes = if line.starts_with("CL.THROTTLE") { ":0" } else { ":1" };
        let remaining: i64 =
            numbers[2].trim_start_matches(':').parse().expect("the remaining count is a number");
        (numbers[0] == yes, u64::try_from(remaining).unwrap_or(u64::MAX))
    }
}
