//! A client that can send anything, and other helpers for tests of servers. The tests of the binary use it too.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// No test waits longer for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A blocking client that says bytes and hears bytes.
pub(crate) struct Peer(pub(crate) TcpStream);

impl Peer {
    pub(crate) fn new(address: Option<SocketAddr>) -> Self {
        let stream = TcpStream::connect(address.expect("it listens there")).expect("it accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket has one");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket has one");
        stream.set_nodelay(true).expect("a socket has that");
        Self(stream)
    }

    /// Who is cut off cannot say everything.
    pub(crate) fn say(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.write_all(bytes.as_ref()).is_ok()
    }

    /// A line, without its end; empty if there is none.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") && matches!(self.0.read(&mut byte), Ok(1)) {
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.say(format!("{line}\r\n"));
        self.line()
    }

    /// All that comes until the server ends it; `None` if it does not.
    pub(crate) fn rest(&mut self) -> Option<Vec<u8>> {
        let (mut all, mut piece) = (Vec::new(), [0; 4_096]);
        loop {
            match self.0.read(&mut piece) {
                Ok(0) => return Some(all),
                Ok(read) => all.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Some(all);
                }
                Err(_) => return None,
            }
        }
    }

    /// How long it takes until the server ends it.
    pub(crate) fn ended_after(&mut self) -> Duration {
        let since = Instant::now();
        assert!(self.rest().is_some(), "the server goes on with it");
        since.elapsed()
    }

    /// Says one byte after the other, with a pause, until it is cut off.
    pub(crate) fn drip(&mut self, bytes: &[u8], pause: Duration) -> Duration {
        let since = Instant::now();
        self.0.set_read_timeout(Some(pause)).expect("a socket has one");
        for byte in bytes.iter().cycle() {
            assert!(since.elapsed() < PATIENCE, "it may drip for ever");
            if !self.say([*byte]) {
                break;
            }
            let mut heard = [0; 256];
            match self.0.read(&mut heard) {
                Ok(0) => break,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                _ => {}
            }
        }
        since.elapsed()
    }
}

/// Polls until it holds.
pub(crate) fn eventually(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + within;
    while !holds() {
        assert!(Instant::now() < until, "not within {within:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// A directory of its own, gone with it.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-tests-{}-{number}", std::process::id());
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
