//! RESP connections: reads commands into a bounded buffer, and writes the answers of a [`Session`].
//!
//! Invariant A peer that does not read its answers is not read from either. Its unwritten answers take at most
//!           [`OUTPUT_STEP`](crate::protocol::resp::OUTPUT_STEP) and one answer, and that at most
//!           [`output_bytes_max`](crate::config::Caps::output_bytes_max).
//! Bound     The input buffer never grows beyond the longest command allowed, which for unauthenticated peers is a sixteenth.

#[cfg(test)]
mod tests;

use super::deadlines::ConnectionState;
use crate::protocol::resp::Session;
use crate::server::Server;
use bytes::BufMut as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes read at once.
const INPUT_STEP: usize = 16 * 1024;
/// An empty input buffer that has grown beyond this for one large command is replaced by a small one.
const INPUT_KEPT: usize = 64 * 1024;
/// Bytes of one connection's commands and answers before other tasks of the worker run: about a hundred decisions. tokio itself would
/// allow 128 reads and writes, and one busy client would delay the others for that long.
const TURN_BYTES: usize = 64 * 1024;

/// Serves one connection until the peer leaves, violates the protocol, or has to be disconnected.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    server: Arc<Server>,
    peer: SocketAddr,
    state: &ConnectionState,
) -> io::Result<()> {
    let mut session = Session::from_address(server, peer.ip());
    let mut input = Vec::with_capacity(INPUT_STEP);
    let mut turn_bytes = 0;
    loop {
        let free = reserve(&mut input, session.command_bytes_max());
        if stream.read_buf(&mut (&mut input).limit(free)).await? == 0 {
            return Ok(());
        }
        state.on_read();
        let mut done = 0;
        loop {
            let answered = session.answer(&input[done..]).await;
            turn_bytes += answered + session.output().len();
            if state.is_unauthenticated() && session.has_token() {
                state.set_authenticated();
            }
            if !session.output().is_empty() {
                state.begin_write();
                stream.write_all(session.output()).await?;
                // TLS may keep what is written until it is flushed.
                stream.flush().await?;
                session.clear_output();
            }
            if session.is_over() {
                return stream.shutdown().await;
            }
            if turn_bytes >= TURN_BYTES {
                turn_bytes = 0;
                tokio::task::yield_now().await;
            }
            done += answered;
            if answered == 0 || done == input.len() {
                break;
            }
        }
        remove_answered(&mut input, done);
        // A command that only continues to arrive keeps its deadline.
        if done > 0 {
            state.await_input(!input.is_empty());
        }
    }
}

/// Reserves space to read into, and returns how many bytes may be read: together with the present input no more than a command
/// may have. Some are left, because input of that length would have been answered or refused.
fn reserve(input: &mut Vec<u8>, command_bytes_max: usize) -> usize {
    debug_assert!(input.len() < command_bytes_max, "a command of this length is refused");
    let step = INPUT_STEP.min(command_bytes_max.saturating_sub(input.len()));
    if input.capacity() - input.len() < step {
        let grown = (2 * input.capacity()).min(command_bytes_max).max(input.len() + step);
        input.reserve_exact(grown - input.len());
    }
    (input.capacity() - input.len()).min(command_bytes_max.saturating_sub(input.len()))
}

fn remove_answered(input: &mut Vec<u8>, done: usize) {
    if done == input.len() {
        input.clear();
        if input.capacity() > INPUT_KEPT {
            *input = Vec::with_capacity(INPUT_STEP);
        }
    } else {
        input.drain(..done);
    }
}
