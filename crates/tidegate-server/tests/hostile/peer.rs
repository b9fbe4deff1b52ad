//! A client that can send any bytes, and other helpers for tests of servers. The tests of the binary use them too.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum time that a test waits for one event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A blocking client that sends and receives bytes.
pub(crate) struct Peer(pub(crate) TcpStream);

impl Peer {
    pub(crate) fn new(address: Option<SocketAddr>) -> Self {
        let stream = TcpStream::connect(address.expect("it listens there")).expect("it accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket has one");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket has one");
        stream.set_nodelay(true).expect("a socket has that");
        Self(stream)
    }

    /// Returns whether all bytes were sent; `false` if the server has closed the connection.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.write_all(bytes.as_ref()).is_ok()
    }

    /// Reads one line, without its end; returns an empty string if the connection ends first.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") && matches!(self.0.read(&mut byte), Ok(1)) {
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n"));
        self.line()
    }

    /// Returns all bytes until the server closes the connection; `None` if it does not within [`PATIENCE`].
    pub(crate) fn read_to_end(&mut self) -> Option<Vec<u8>> {
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

    /// Waits until the server closes the connection, and returns how long that took.
    pub(crate) fn time_until_closed(&mut self) -> Duration {
        let since = Instant::now();
        assert!(self.read_to_end().is_some(), "the server keeps the connection open");
        since.elapsed()
    }

    /// Sends one byte at a time, with a pause after each, until the server closes the connection. Returns how long that
    /// took.
    pub(crate) fn drip(&mut self, bytes: &[u8], pause: Duration) -> Duration {
        let since = Instant::now();
        self.0.set_read_timeout(Some(pause)).expect("a socket has one");
        for byte in bytes.iter().cycle() {
            assert!(
                since.elapsed() < PATIENCE,
                "the server lets the client send byte by byte forever"
            );
            if !self.send([*byte]) {
                break;
            }
            let mut received = [0; 256];
            match self.0.read(&mut received) {
                Ok(0) => break,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                _ => {}
            }
        }
        since.elapsed()
    }
}

/// Polls until the condition holds; panics with `what` if it does not hold in time.
pub(crate) fn eventually(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + within;
    while !holds() {
        assert!(Instant::now() < until, "not within {within:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// A temporary directory, removed on drop.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-tests-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("the directory is created");
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("the file is written");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
