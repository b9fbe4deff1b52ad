//! RESP, the protocol of Redis clients.
//!
//! ```text
//! parse         bytes to words
//! dispatch      words to commands, in order
//!   command     the table of commands
//!   connection  AUTH, HELLO, CLIENT, INFO and what else client libraries send
//!   throttle    CL.THROTTLE and DEL, in batches
//!   tide        TIDE.*
//!   transaction the queue of MULTI
//!   pipeline    with limits in Redis: independent commands at the same time
//! session       the state of one client
//! reply         RESP2 and RESP3
//! ```
//!
//! Life of a pipeline: all input that has arrived is parsed; runs of `CL.THROTTLE` are decided in batches of up to 128, each with
//! one reading of the clock; all answers are written at once.
//!
//! Invariant Answers come in the order of the commands.
//! Bound     Unsent answers take at most `OUTPUT_STEP` and one answer; for unauthenticated peers a kilobyte.

mod command;
mod connection;
mod dispatch;
mod parse;
mod pipeline;
mod reply;
mod session;
#[cfg(test)]
mod tests;
mod throttle;
mod tide;
mod transaction;

pub use parse::{CommandCaps, ProtocolError, Words, parse};
pub use session::Session;

/// Length of the answers at which they are sent.
pub(crate) const OUTPUT_STEP: usize = 64 * 1024;
/// The same for unauthenticated peers, whose answers are short.
const UNAUTHENTICATED_OUTPUT_STEP: usize = 1024;
/// An output buffer that has grown beyond this for one long answer is shrunk to it.
const OUTPUT_KEPT: usize = 4 * OUTPUT_STEP;
