//! `tidegate serve` as a process, and a client of it.

pub(crate) use crate::peer::{Directory, PATIENCE, Peer, eventually};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A process; killed with it if it has not ended.
pub(crate) struct Daemon {
    child: Child,
    /// Its addresses, by the name that the banner prints.
    addresses: Vec<(String, SocketAddr)>,
    log: Arc<Mutex<String>>,
}

const FREE: &str = "127.0.0.1:0";

impl Daemon {
    /// Starts it from a shell that runs `before` first.
    pub(crate) fn start(before: &str, config: &Path, args: &[&str]) -> Self {
        let off = ["--http", "off", "--grpc", "off", "--admin", "off", "--resp", FREE];
        let args: Vec<&str> = off.iter().chain(args).copied().collect();
        Self::spawn(before, config, &args, Stdio::piped())
    }

    /// Starts one with a RESP and an admin listener.
    pub(crate) fn start_with_admin(before: &str, config: &Path) -> Self {
        let on = ["--resp", FREE, "--http", "off", "--grpc", "off", "--admin", FREE];
        Self::spawn(before, config, &on, Stdio::piped())
    }

    /// Starts one with an HTTP and an admin listener whose log goes to `log`.
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
            .expect("it starts");
        let log = Arc::new(Mutex::new(String::new()));
        if let Some(stderr) = child.stderr.take() {
            let kept = Arc::clone(&log);
            std::thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    let mut log = kept.lock().expect("nobody panics with it");
                    log.push_str(&line);
                    log.push('\n');
                }
            });
        }
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut lines = out.lines().map_while(Result::ok);
        let places = lines.by_ref().skip(1).take(4).filter_map(|line| {
            let (name, place) = line.trim().split_once(' ')?;
            Some((name.to_owned(), place.trim().parse().ok()?))
        });
        let addresses: Vec<_> = places.collect();
        let said = || log.lock().expect("nobody panics with it").clone();
        assert!(!addresses.is_empty(), "it does not say where it listens: {}", said());
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
        peer.say(format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n"));
        String::from_utf8(peer.rest().expect("it answers")).expect("it is text")
    }

    pub(crate) fn says(&self, what: &str) -> bool {
        self.log.lock().expect("nobody panics with it").contains(what)
    }

    /// Returns the whole log.
    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("nobody panics with it").clone()
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -{name}");
    }

    /// Lowers its limit of file descriptors while it runs.
    pub(crate) fn limit_descriptors(&self, number: u32) {
        let (id, limit) = (self.child.id().to_string(), format!("--nofile={number}:{number}"));
        let limited = Command::new("prlimit").args(["--pid", &id, &limit]).status();
        assert!(limited.is_ok_and(|status| status.success()), "prlimit {limit}");
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Waits until it ends after a signal, and returns its status.
    pub(crate) fn end(mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                return status;
            }
            assert!(Instant::now() < until, "it does not end");
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
        let remaining: i64 = numbers[2].trim_start_matches(':').parse().expect("a number");
        (numbers[0] == yes, u64::try_from(remaining).unwrap_or(u64::MAX))
    }
}
