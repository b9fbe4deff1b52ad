//! The faults of the network between a client and its server.

use std::time::Duration;

/// How the proxy behaves from now on.
///
/// A *reply* is what one read from the server returns: a single reply to a client that waits for each reply, and
/// possibly several to a client that pipelines requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault: everything passes.
    Pass,
    /// Open connections are reset, and new ones are refused.
    Refuse,
    /// Connections are accepted and read, and nothing is forwarded or answered. A connection that has lost bytes stays
    /// like that under any later fault but [`Fault::Refuse`], because TCP never drops bytes in the middle and goes on.
    BlackHole,
    /// Every reply is delayed by this time. Replies in flight are delayed together and not one after the other, as on a
    /// link with high latency.
    Delay(Duration),
    /// Every `n`th reply over all connections is delayed, together with the replies behind it on its connection.
    DelayOneIn {
        /// One in `n` replies; with 1, all.
        n: u64,
        /// The delay.
        delay: Duration,
    },
    /// The server executes the request, and the connection is reset after half of the reply.
    ResetMidReply,
    /// The server executes the request, and the connection is reset instead of the reply.
    LoseReply,
    /// Open and new connections are closed in the direction to the client only: it reads the end, and what it writes is
    /// still forwarded.
    HalfClose,
    /// Each connection forwards this many bytes of replies, and is then closed in order.
    Truncate(usize),
}
