//! A server that decides nothing: whatever it is asked, it is the same five numbers, one answer to a command. What is left is
//! the kernel's sockets and the load: about as many requests a second as that load gets from anybody who answers so.
//!
//! `no_decision PORT`; `cargo xtask bench-serve` starts it, and ends it.
//!
//! Always   As lean as an event loop can be without `unsafe`: one read and one write for all that has come, and before it sleeps
//!          it looks again for as long as our own workers do.

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tidegate_bench::clock::now;

/// What `CL.THROTTLE` answers.
const ANSWER: &[u8] = b"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n";
const DOOR: Token = Token(usize::MAX);
const INPUT_BYTES: usize = 64 * 1024;
/// Looks for so long before it sleeps, as `stay_awake` is unless told.
const STAY_AWAKE: Duration = Duration::from_micros(50);

fn main() -> io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok());
    let port: u16 = port.ok_or_else(|| io::Error::other("which port?"))?;
    let mut poll = Poll::new()?;
    let mut door = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    poll.registry().register(&mut door, DOOR, Interest::READABLE)?;
    let (mut events, mut peers) = (Events::with_capacity(1_024), HashMap::new());
    let (mut input, mut answers) = (vec![0; INPUT_BYTES], Vec::new());
    loop {
        look(&mut poll, &mut events)?;
        for event in &events {
            let token = event.token();
            if token == DOOR {
                welcome(&poll, &door, &mut peers)?;
            } else if let Some(peer) = peers.get_mut(&token)
                && answer(peer, &mut input, &mut answers).is_err()
            {
                peers.remove(&token);
            }
        }
    }
}

/// Waits until something has come, and does not sleep at once.
fn look(poll: &mut Poll, events: &mut Events) -> io::Result<()> {
    let since = now();
    while since.elapsed() < STAY_AWAKE {
        poll.poll(events, Some(Duration::ZERO))?;
        if !events.is_empty() {
            return Ok(());
        }
    }
    poll.poll(events, None)
}

fn welcome(
    poll: &Poll,
    door: &TcpListener,
    peers: &mut HashMap<Token, TcpStream>,
) -> io::Result<()> {
    loop {
        let (mut peer, address) = match door.accept() {
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

/// Answers all that has come. The load's keys have no asterisks, so each is a command.
fn answer(peer: &mut TcpStream, input: &mut [u8], answers: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let count = match peer.read(input) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        answers.clear();
        for _command in input[..count].split(|byte| *byte == b'*').skip(1) {
            answers.extend_from_slice(ANSWER);
        }
        // What a load has asked for at once fits into a socket's buffer.
        peer.write_all(answers)?;
        if count < input.len() {
            return Ok(());
        }
    }
}
