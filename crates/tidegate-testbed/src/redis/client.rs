//! A minimal blocking Redis client.
//!
//! Rejected A client crate: the stores under test use one, and the testbed must be able to contradict it.

use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::reply::Reply;
use crate::wait::PATIENCE;

/// One connection.
pub struct Client(BufReader<Box<dyn Wire>>);

trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

impl Client {
    /// Connects over TCP. A command fails without a reply within [`PATIENCE`].
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(Box::new(stream))))
    }

    pub(super) fn connect_unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(Box::new(stream))))
    }

    /// Sends a command and waits for the reply. An error reply is a reply, too.
    pub fn command(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.0.get_mut().write_all(&encode(words))?;
        Reply::read(&mut self.0)
    }
}

fn encode(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words.iter().map(AsRef::as_ref) {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_be_any_bytes() {
        let words: [&[u8]; 3] = [b"SET", b"\r\n", b""];
        assert_eq!(encode(&words), b"*3\r\n$3\r\nSET\r\n$2\r\n\r\n\r\n$0\r\n\r\n");
    }
}
