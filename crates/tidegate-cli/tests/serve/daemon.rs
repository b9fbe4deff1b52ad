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
    resp: SocketAddr,
    log: Arc<Mutex<String>>,
}

impl Daemon {
    /// `before` is what a shell does first.
    pub(crate) fn start(before: &str, config: &Path, args: &[&str]) -> Self {
        let off = ["--http", "off", "--grpc", "off", "--admin", "off", "--resp", "127.0.0.1:0"];
        let mut child = Command::new("sh")
            .args(["-c", &format!("{before} exec \"$0\" \"$@\"")])
            .args([env!("CARGO_BIN_EXE_tidegate"), "serve", "--config"])
            .arg(config)
            .args(off)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let log = Arc::new(Mutex::new(String::new()));
        let (kept, stderr) = (Arc::clone(&log), child.stderr.take().expect("it is piped"));
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = kept.lock().expect("nobody panics with it");
                log.push_str(&line);
                log.push('\n');
            }
        });
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut lines = out.lines().map_while(Result::ok);
        let line = lines.find(|line| line.trim_start().starts_with("RESP "));
        let resp = line.as_deref().and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        let said = || log.lock().expect("nobody panics with it").clone();
        let resp = resp.unwrap_or_else(|| panic!("it does not say where it listens: {}", said()));
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, resp, log }
    }

    pub(crate) fn connect(&self) -> Peer {
        Peer::new(Some(self.resp))
    }

    pub(crate) fn says(&self, what: &str) -> bool {
        self.log.lock().expect("nobody panics with it").contains(what)
    }

    /// All that it has logged.
    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("nobody panics with it").clone()
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -{name}");
    }

    /// Lets it have no more descriptors than these, from now on.
    pub(crate) fn limit_descriptors(&self, number: u32) {
        let (id, limit) = (self.child.id().to_string(), format!("--nofile={number}:{number}"));
        let limited = Command::new("prlimit").args(["--pid", &id, &limit]).status();
        assert!(limited.is_ok_and(|status| status.success()), "prlimit {limit}");
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// How it ends, when it was told to.
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
    /// What `TIDE.CHECK`, `TIDE.PEEK` or `CL.THROTTLE` says: whether it is allowed, and how much remains.
    pub(crate) fn five(&mut self, line: &str) -> (bool, u64) {
        assert_eq!(self.ask(line), "*5", "{line}");
        let numbers: Vec<String> = (0..5).map(|_| self.line()).collect();
        // redis-cell's 1 is a no.
        let yes = if line.starts_with("CL.THROTTLE") { ":0" } else { ":1" };
        (numbers[0] == yes, numbers[2].trim_start_matches(':').parse().expect("a number"))
    }
}
