//! `tidegate serve` as a process, and a client of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A process; killed with it if it has not ended.
pub(crate) struct Daemon {
    child: Child,
    resp: String,
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
        let resp =
            line.as_deref().and_then(|line| line.split_whitespace().nth(1)).map(str::to_owned);
        let said = || log.lock().expect("nobody panics with it").clone();
        let resp = resp.unwrap_or_else(|| panic!("it does not say where it listens: {}", said()));
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, resp, log }
    }

    pub(crate) fn connect(&self) -> Peer {
        let stream = TcpStream::connect(&self.resp).expect("it accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket has one");
        Peer(BufReader::new(stream))
    }

    pub(crate) fn says(&self, what: &str) -> bool {
        self.log.lock().expect("nobody panics with it").contains(what)
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -{name}");
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

pub(crate) struct Peer(BufReader<TcpStream>);

impl Peer {
    pub(crate) fn ask(&mut self, line: &str) -> Option<String> {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).ok()?;
        self.line()
    }

    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.0.by_ref().take(1 << 20).read_line(&mut line).ok()?;
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// What `TIDE.CHECK` or `TIDE.PEEK` says: whether it is allowed, and how much remains.
    pub(crate) fn five(&mut self, line: &str) -> Option<(bool, u64)> {
        let first = self.ask(line)?;
        assert_eq!(first, "*5", "{line}");
        let numbers: Option<Vec<String>> = (0..5).map(|_| self.line()).collect();
        let numbers = numbers?;
        Some((numbers[0] == ":1", numbers[2].trim_start_matches(':').parse().expect("a number")))
    }
}

/// A directory of its own, gone with it.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-serve-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("it can be made");
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("it can be written");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn eventually(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + within;
    while !holds() {
        assert!(Instant::now() < until, "not within {within:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
