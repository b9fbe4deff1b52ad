//! A server without decisions: it answers every command with the same five numbers. Its speed is that of the kernel's
//! sockets and of the load generator, so it is about the most that this load can get from any server.
//!
//! `no_decision PORT`; `cargo xtask bench-serve` starts and ends it.
//!
//! Always   As lean as an event loop can be without `unsafe`: one read and one write for all pending commands, and a short
//!          busy-poll before it sleeps.

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tidegate_bench::clock::now;

/// A reply to `CL.THROTTLE`.
const REPLY: &[u8] = b"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n";
const LISTENER: Token = Token(usize::MAX);
const INPUT_BYTES: usize = 64 * 1024;
/// How long it polls before it sleeps.
const BUSY_POLL: Duration = Duration::from_micros(50);

fn main() -> io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok());
    let port: u16 = port.ok_or_else(|| io::Error::other("usage: no_decision PORT"))?;
    let mut poll = Poll::new()?;
    let mut listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let (mut events, mut peers) = (Events::with_capacity(1_024), HashMap::new());
    let (mut input, mut replies) = (vec![0; INPUT_BYTES], Vec::new());
    loop {
        wait(&mut poll, &mut events)?;
        for event in &events {
            let token = event.token();
            if token == LISTENER {
                accept(&poll, &listener, &mut peers)?;
            } else if let Some(peer) = peers.get_mut(&token)
                && answer(peer, &mut input, &mut replies).is_err()
            {
                peers.remove(&token);
            }
        }
    }
}

/// Waits for events, with a busy-poll before it sleeps.
fn wait(poll: &mut Poll, events: &mut Events) -> io::Result<()> {
    let since = now();
    while since.elapsed() < BUSY_POLL {
        poll.poll(events, Some(Duration::ZERO))?;
        if !events.is_empty() {
            return Ok(());
        }
    }
    poll.poll(events, None)
}

fn accept(
    poll: &Poll,
    listener: &TcpListener,
    peers: &mut HashMap<Token, TcpStream>,
) -> io::Result<()> {
    loop {
        let (mut peer, address) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        peer.set_nodelay(true)?;
        let token = Token(address.port().into());
        poll.registry().register(&mut peer, token, Interest::READABLE)?;
        peers.insert(token, peer);
    }
}

/// Answers all pending commands. The keys of the load contain no asterisk, so each asterisk starts a command.
fn answer(peer: &mut TcpStream, input: &mut [u8], replies: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let count = match peer.read(input) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        replies.clear();
        for _command in input[..count].split(|byte| *byte == b'*').skip(1) {
            replies.extend_from_slice(REPLY);
        }
        // The replies to one pipeline fit into the socket's buffer.
        peer.write_all(replies)?;
        if count < input.len() {
            return Ok(());
        }
    }
}
