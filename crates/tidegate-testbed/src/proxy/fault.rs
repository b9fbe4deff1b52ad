//! What can go wrong between a client and its server.

use std::time::Duration;

/// How the proxy behaves from now on.
///
/// A reply is what the server sends in one piece. To a client that asks one thing at a time that is one reply; to one
/// that does not wait for answers it may be several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None: everything passes.
    Pass,
    /// Nobody listens any more: connections that are open are reset, new ones refused.
    Refuse,
    /// Accepts and reads, and neither passes on nor answers anything. A connection that has lost something stays like
    /// that under any later fault but [`Fault::Refuse`]: no network drops bytes in the middle and goes on.
    BlackHole,
    /// Every reply comes so much later. Replies that are under way together are late together, not one after the
    /// other, as on a long line.
    Delay(Duration),
    /// Every `n`th reply of all connections comes later, and what comes behind it on its connection waits for it.
    DelayOneIn {
        /// Of how many; with 1 each is late.
        n: u64,
        /// How much later.
        delay: Duration,
    },
    /// The request is passed on and the server acts on it; after half of the reply the connection is reset.
    ResetMidReply,
    /// The request is passed on and the server acts on it; instead of the reply there is a reset.
    LoseReply,
    /// Connections, those that are open at once and new ones from the start, are closed in the direction of the
    /// client only: it reads the end, may still write, and what it writes is passed on.
    HalfClose,
    /// So many bytes of replies are passed on each connection, and then it is closed in order.
    Truncate(usize),
}
