//! A server that answers commands with bytes of the test's choice, as a hostile or broken Redis would.
//!
//! Only for replies that Redis itself never sends; everything else is tested against Redis.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Listens on a loopback port until the process ends.
///
/// ```
/// use tidegate_testbed::{Client, FakeRedis};
///
/// let fake = FakeRedis::start(|command| match command {
///     "PING" => b"+PONG\r\n",
///     _ => b"-ERR \x1b[2J\r\n",
/// });
/// let reply = Client::connect(fake.address()).unwrap().command(&["GET", "a"]).unwrap();
/// assert!(!reply.is_ok());
/// ```
#[derive(Debug)]
pub struct FakeRedis {
    address: SocketAddr,
}

impl FakeRedis {
    /// Answers each command, by its name in upper case, with these bytes.
    pub fn start(answer: fn(&str) -> &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port is free");
        let address = listener.local_addr().expect("the listener is bound");
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // A connection ends when its client closes it.
                thread::spawn(move || drop(serve(stream, answer)));
            }
        });
        Self { address }
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL for a configuration.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}

fn serve(stream: TcpStream, answer: fn(&str) -> &'static [u8]) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let count = number(&mut reader)?;
        let mut name = String::new();
        for word in 0..count {
            let mut bytes = vec![0; number(&mut reader)? + 2];
            reader.read_exact(&mut bytes)?;
            if word == 0 {
                name = String::from_utf8_lossy(&bytes).trim_end().to_ascii_uppercase();
            }
        }
        reader.get_mut().write_all(answer(&name))?;
    }
}

/// Reads the number of a line such as `*3` or `$5`.
fn number(reader: &mut BufReader<TcpStream>) -> io::Result<usize> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let number = line.get(1..).and_then(|number| number.trim_end().parse().ok());
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
