//! RESP: what every Redis client speaks.
//!
//! Life of a pipeline: all that has come is parsed; runs of `CL.THROTTLE` are decided in batches of up to 128, each with one
//! look at the clock; all answers are written at once. Where limits are in a store that takes a while, all that
//! can be is asked of it at the same time (`together.rs`).
//!
//! Always   Answers come in the order of the commands. A peer that does not read is not listened to: what it
//!          has not been sent stays under `OUTPUT_STEP` and one answer, and that under
//!          [`output_bytes_max`](crate::config::Caps::output_bytes_max).
//! Always   Of what a peer has said and was not answered, no more is kept than one command may have, and no more memory is
//!          taken for it. For strangers that is a sixteenth, and answers to them are a kilobyte.

mod client;
mod command;
mod parse;
mod reply;
mod session;
#[cfg(test)]
mod tests;
mod throttle;
mod tide;
mod together;
mod transaction;

pub use parse::{Caps, ProtocolError, Words, parse};
pub use session::Session;

use crate::listen::Activity;
use crate::server::Server;
use bytes::BufMut as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// So much is answered before it is written.
const OUTPUT_STEP: usize = 64 * 1024;
/// The same before the peer has said who it is: its answers are short.
const STRANGERS_OUTPUT_STEP: usize = 1024;
/// A buffer that has grown for one long answer is not kept.
const OUTPUT_KEPT: usize = 4 * OUTPUT_STEP;
/// So much is read at once.
const INPUT_STEP: usize = 16 * 1024;
/// A buffer that has grown for one large command is not kept.
const INPUT_KEPT: usize = 64 * 1024;
/// So much of what one peer asks and is told comes before others have their turn: some hundred decisions. tokio itself would
/// let it go on for 128 reads and writes, and whoever shares a worker with who asks without end would wait that long.
const TURN_BYTES: usize = 64 * 1024;

/// Talks to one peer until it leaves, misbehaves, or is asked to go.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    server: Arc<Server>,
    peer: SocketAddr,
    activity: &Activity,
) -> io::Result<()> {
    let mut session = Session::from_address(server, peer.ip());
    let mut input = Vec::with_capacity(INPUT_STEP);
    let mut turn_bytes = 0;
    loop {
        let room = make_room(&mut input, session.caps().command_bytes_max);
        if stream.read_buf(&mut (&mut input).limit(room)).await? == 0 {
            return Ok(());
        }
        activity.has_read();
        let mut done = 0;
        loop {
            let answered = session.answer(&input[done..]).await;
            turn_bytes += answered + session.said().len();
            if activity.is_unknown() && session.token.is_some() {
                activity.is_known();
            }
            if !session.said().is_empty() {
                activity.is_writing();
                stream.write_all(session.said()).await?;
                // Under TLS, what is written is not yet on its way.
                stream.flush().await?;
                session.forget_said();
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
        keep_rest(&mut input, done);
        // A command that only goes on coming has no more time than it had.
        if done > 0 {
            activity.is_reading(!input.is_empty());
        }
    }
}

/// Makes room to read into, and tells how much there is: with what has come, not more than a command may have. As that
/// would have been refused, there is some.
fn make_room(input: &mut Vec<u8>, most: usize) -> usize {
    debug_assert!(input.len() < most, "it is no part of a command");
    let step = INPUT_STEP.min(most.saturating_sub(input.len()));
    if input.capacity() - input.len() < step {
        let grown = (2 * input.capacity()).min(most).max(input.len() + step);
        input.reserve_exact(grown - input.len());
    }
    (input.capacity() - input.len()).min(most.saturating_sub(input.len()))
}

fn keep_rest(input: &mut Vec<u8>, done: usize) {
    if done == input.len() {
        input.clear();
        if input.capacity() > INPUT_KEPT {
            *input = Vec::with_capacity(INPUT_STEP);
        }
    } else {
        input.drain(..done);
    }
}
