//! Forwards replies to the client, with most of the faults: replies are read at once, and written when they are due.
//!
//! Always   In order: a delayed reply delays those behind it.
//! Bound    At most `QUEUE_PIECES_MAX` replies are queued; then the server has to wait, as for a slow client.

use std::future::pending;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::select;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep_until};

use super::fault::Fault;
use super::shared_state::{End, PIECE_BYTES_MAX, SharedState};

const QUEUE_PIECES_MAX: usize = 1_024;

pub(super) async fn pass(state: &SharedState, from: ReadHalf<'_>, to: WriteHalf<'_>) -> End {
    let (queue, queued) = channel(QUEUE_PIECES_MAX);
    let reader = Reader { state, queue, truncated_bytes: 0, is_half_closed: false };
    let read = async {
        reader.run(from).await;
        // The queued replies are still to be written, so the connection does not end here.
        pending().await
    };
    select! {
        end = write(state, queued, to) => end,
        end = read => end,
    }
}

/// An event for the client, and when it is due.
struct Queued {
    due: Instant,
    piece: Piece,
}

enum Piece {
    Bytes(Vec<u8>),
    HalfClose,
    End(End),
}

async fn write(state: &SharedState, mut queued: Receiver<Queued>, mut to: WriteHalf<'_>) -> End {
    while let Some(Queued { due, piece }) = queued.recv().await {
        sleep_until(due).await;
        match piece {
            Piece::Bytes(bytes) => {
                if to.write_all(&bytes).await.is_err() {
                    return End::Reset;
                }
                state.counts.reply_bytes.add(bytes.len());
            }
            Piece::HalfClose => {
                // Fails only if the client has closed the connection.
                let _ = to.shutdown().await;
            }
            Piece::End(end) => return end,
        }
    }
    // The reader has stopped without queueing an end: the connection stays open.
    pending().await
}

struct Reader<'a> {
    state: &'a SharedState,
    queue: Sender<Queued>,
    /// Bytes forwarded under `Fault::Truncate`.
    truncated_bytes: usize,
    is_half_closed: bool,
}

impl Reader<'_> {
    /// Runs until the end of the connection is queued, or until it is swallowed by a black hole.
    async fn run(mut self, mut from: ReadHalf<'_>) {
        let mut piece = vec![0; PIECE_BYTES_MAX];
        loop {
            select! {
                () = self.state.becomes(Fault::HalfClose), if !self.is_half_closed => {
                    self.is_half_closed = true;
                    self.queue(Duration::ZERO, Piece::HalfClose).await;
                }
                read = from.read(&mut piece) => match read {
                    _ if self.state.is_lost() => return,
                    Ok(0) => return self.queue(Duration::ZERO, Piece::End(End::Close)).await,
                    Err(_) => return self.queue(Duration::ZERO, Piece::End(End::Reset)).await,
                    // Replies to a half-closed connection are dropped.
                    Ok(_) if self.is_half_closed => {}
                    Ok(bytes) => {
                        if let Some(end) = self.reply(&piece[..bytes]).await {
                            return self.queue(Duration::ZERO, Piece::End(end)).await;
                        }
                    }
                },
            }
        }
    }

    /// Handles a reply under the current fault, and returns how the connection ends, if it does.
    async fn reply(&mut self, reply: &[u8]) -> Option<End> {
        let fault = self.state.fault();
        if !matches!(fault, Fault::Truncate(_)) {
            self.truncated_bytes = 0;
        }
        let (delay, passed, end) = match fault {
            Fault::Delay(delay) => (delay, reply.len(), None),
            Fault::DelayOneIn { n, delay } if self.is_nth(n) => (delay, reply.len(), None),
            Fault::ResetMidReply => (Duration::ZERO, reply.len() / 2, Some(End::Reset)),
            Fault::LoseReply => (Duration::ZERO, 0, Some(End::Reset)),
            Fault::Truncate(bytes) => {
                let passed = reply.len().min(bytes.saturating_sub(self.truncated_bytes));
                self.truncated_bytes += passed;
                (Duration::ZERO, passed, (self.truncated_bytes == bytes).then_some(End::Close))
            }
            // `run` and the connection handle the other faults, which are independent of replies.
            _ => (Duration::ZERO, reply.len(), None),
        };
        if passed > 0 {
            self.queue(delay, Piece::Bytes(reply[..passed].to_vec())).await;
        }
        end
    }

    fn is_nth(&self, n: u64) -> bool {
        self.state.counts.replies.add(1).is_multiple_of(n)
    }

    async fn queue(&self, delay: Duration, piece: Piece) {
        // Fails only if the connection has ended.
        let _ = self.queue.send(Queued { due: Instant::now() + delay, piece }).await;
    }
}
