//! `CL.THROTTLE key max_burst count period [quantity]`, answered as redis-cell answers it (P6), and `DEL`.
//!
//! Consecutive commands are queued and decided as one [batch](Engine::decide_throttles) of the engine.

use super::command::Command;
use super::parse::Words;
use super::reply::Reply;
use crate::clock::ServerClock;
use crate::engine::Engine;
use crate::server::{Server, Wire};
use tidegate::store::ClientId;
use tidegate::throttle::{Throttle, ThrottleBatch, ZeroRate};

/// Number of commands decided at once: more are not faster, and the rows that are prefetched must fit the cache.
const BATCH_MAX: usize = 128;
/// Maximum length of a wrong number in an error.
const SHOWN_BYTES_MAX: usize = 1_024;
/// Maximum length of an answer.
const REPLY_BYTES_MAX: usize = 4 + 5 * 23;

/// Commands that wait to be decided together.
#[derive(Debug)]
pub(super) struct ThrottleQueue {
    batch: ThrottleBatch<ServerClock>,
}

/// What is wrong with a `CL.THROTTLE`, in redis-cell's words: clients may search for them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ThrottleError {
    #[error(
        "Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> \
         [<quantity>]"
    )]
    Usage,
    #[error("Cell error: Store error: Couldn't parse as integer: {0}")]
    NoInteger(String),
    #[error("Cell error: Store error: {0}")]
    Zero(#[from] ZeroRate),
}

/// Runs one `CL.THROTTLE` without a batch, for a store whose decisions take a round trip.
pub(super) async fn run(server: &Server, reply: &mut Reply, bytes: &[u8], words: &Words) {
    match parse(bytes, words) {
        Ok(throttle) => {
            let key = words.get(bytes, 1);
            reply.five(server.engine.throttle(key, &throttle).await.reply());
        }
        Err(error) => reply.error(error),
    }
}

/// `DEL key…`: resets keys of `CL.THROTTLE`.
pub(super) async fn del(
    (server, peer): (&Server, ClientId),
    reply: &mut Reply,
    bytes: &[u8],
    words: &Words,
) {
    if let Err(error) = Command::Del.check_arity(words.len()) {
        return reply.error(error);
    }
    let _waiting = match server.wait(Wire::Resp, peer) {
        Ok(waiting) => waiting,
        Err(busy) => return reply.error(format_args!("BUSY {busy}")),
    };
    let mut deleted = 0;
    for key in words.from(bytes, 1) {
        match server.engine.reset_throttle(key).await {
            Ok(was_in_debt) => deleted += i64::from(was_in_debt),
            Err(error) => return reply.error(format_args!("TRYAGAIN {error}")),
        }
    }
    reply.integer(deleted);
}

fn parse(bytes: &[u8], words: &Words) -> Result<Throttle, ThrottleError> {
    if !(5..=6).contains(&words.len()) {
        return Err(ThrottleError::Usage);
    }
    let number = |position| integer(words.get(bytes, position));
    // In this order: the error names the first of several wrong numbers.
    let (max_burst, count, period) = (number(2)?, number(3)?, number(4)?);
    let quantity = if words.len() == 6 { number(5)? } else { 1 };
    Ok(Throttle::new(max_burst, count, period, quantity)?)
}

/// Parses as Rust parses an `i64`: an optional sign, digits, nothing else.
fn integer(word: &[u8]) -> Result<i64, ThrottleError> {
    let text = std::str::from_utf8(word).ok();
    let integer = text.and_then(|text| text.parse().ok());
    let shown = &word[..word.len().min(SHOWN_BYTES_MAX)];
    integer.ok_or_else(|| ThrottleError::NoInteger(String::from_utf8_lossy(shown).into_owned()))
}

impl ThrottleQueue {
    pub(super) fn new(engine: &Engine) -> Self {
        Self { batch: engine.throttle_batch() }
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.batch.len() >= BATCH_MAX
    }

    /// Returns the maximum length of the answers to the queued commands.
    #[inline]
    pub(super) fn reply_bytes_max(&self) -> usize {
        self.batch.len() * REPLY_BYTES_MAX
    }

    /// Queues a command until [`decide`](Self::decide).
    #[inline]
    pub(super) fn push(&mut self, bytes: &[u8], words: &Words) -> Result<(), ThrottleError> {
        let throttle = parse(bytes, words)?;
        self.batch.push(words.get(bytes, 1), throttle);
        Ok(())
    }

    /// Decides the queued commands and appends their answers.
    #[inline]
    pub(super) fn decide(&mut self, engine: &Engine, reply: &mut Reply) {
        if !self.batch.is_empty() {
            engine.decide_throttles(&mut self.batch, |throttled| reply.five(throttled.reply()));
        }
    }
}
