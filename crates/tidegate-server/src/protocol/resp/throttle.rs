//! `CL.THROTTLE key max_burst count period [quantity]`, as redis-cell answers it (P6).
//!
//! Always   Consecutive commands of a client are one [batch](Engine::decide_throttles) of the engine, which costs a fifth of single
//!          decisions. Numbers that are repeated are parsed once.
//! Always   A command that differs from the last one in the bytes of its key only is not parsed again. Lengths come
//!          before what they measure, so it cannot be read in another way.

use super::parse::Words;
use super::reply::Reply;
use crate::clock::ServerClock;
use crate::engine::Engine;
use crate::server::Server;
use std::ops::Range;
use tidegate::{Throttle, ThrottleBatch, ZeroRate};

/// So many are decided at once: more do not make it faster, and what is fetched ahead must fit the cache.
const BATCH_MAX: usize = 128;
/// No longer command is remembered.
const LAST_BYTES_MAX: usize = 512;
/// No answer is longer.
const REPLY_BYTES_MAX: usize = 4 + 5 * 23;

#[derive(Debug)]
pub(super) struct Throttling {
    batch: ThrottleBatch<ServerClock>,
    /// The numbers as they were written last, how many, and what they meant.
    numbers: Vec<u8>,
    words: usize,
    meant: Option<Throttle>,
    last: Last,
}

/// The last command that was asked, as it came, and where its key is in it. Empty if it was not an array.
#[derive(Debug, Default)]
struct Last {
    bytes: Vec<u8>,
    key: Range<usize>,
}

/// What is wrong with a `CL.THROTTLE`, in redis-cell's own words: clients may look for them.
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

/// Runs one that is not batched: in a store that takes a while.
pub(super) async fn run(server: &Server, reply: &mut Reply, bytes: &[u8], words: &Words) {
    match read(bytes, words) {
        Ok(throttle) => {
            let key = words.get(bytes, 1);
            reply.five(server.engine.throttle(key, &throttle).await.reply());
        }
        Err(error) => reply.error(error),
    }
}

fn read(bytes: &[u8], words: &Words) -> Result<Throttle, ThrottleError> {
    if !(5..=6).contains(&words.len()) {
        return Err(ThrottleError::Usage);
    }
    let number = |place| integer(words.get(bytes, place));
    // In this order: where several are wrong, the first is named.
    let (max_burst, count, period) = (number(2)?, number(3)?, number(4)?);
    let quantity = if words.len() == 6 { number(5)? } else { 1 };
    Ok(Throttle::new(max_burst, count, period, quantity)?)
}

impl Throttling {
    pub(super) fn new(engine: &Engine) -> Self {
        Self {
            batch: engine.throttle_batch(),
            numbers: Vec::new(),
            words: 0,
            meant: None,
            last: Last::default(),
        }
    }

    /// How long the answers to what was asked can become.
    #[inline]
    pub(super) fn reply_bytes(&self) -> usize {
        self.batch.len() * REPLY_BYTES_MAX
    }

    /// Asks. The answer comes when it is [settled](Self::settle).
    #[inline]
    pub(super) fn ask(&mut self, bytes: &[u8], words: &Words) -> Result<(), ThrottleError> {
        let numbers = words.span(bytes, 2);
        let meant = match self.meant {
            Some(meant) if words.len() == self.words && numbers == self.numbers => meant,
            _ => self.understand(bytes, words)?,
        };
        self.last.remember(bytes, words);
        self.batch.push(words.get(bytes, 1), meant);
        Ok(())
    }

    /// Asks, if what has come begins with the last command about any key of the same length. Tells how many bytes it
    /// had.
    #[inline]
    pub(super) fn ask_alike(&mut self, bytes: &[u8]) -> Option<usize> {
        let key = self.last.key_of(bytes)?;
        self.batch.push(key, self.meant?);
        Some(self.last.bytes.len())
    }

    fn understand(&mut self, bytes: &[u8], words: &Words) -> Result<Throttle, ThrottleError> {
        let throttle = read(bytes, words)?;
        self.numbers.clear();
        self.numbers.extend_from_slice(words.span(bytes, 2));
        (self.words, self.meant) = (words.len(), Some(throttle));
        Ok(throttle)
    }

    /// Decides what was asked, and says so.
    #[inline]
    pub(super) fn settle(&mut self, engine: &Engine, reply: &mut Reply) {
        if !self.batch.is_empty() {
            engine.decide_throttles(&mut self.batch, |throttled| reply.five(throttled.reply()));
        }
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.batch.len() >= BATCH_MAX
    }
}

impl Last {
    /// A command that was read from the beginning of these bytes.
    #[inline]
    fn remember(&mut self, bytes: &[u8], words: &Words) {
        self.bytes.clear();
        // A line has no lengths: there, another key could have another end. And what is long is not asked often.
        if let (Some(b'*'), Some(end)) = (bytes.first(), words.end())
            && end + 2 <= LAST_BYTES_MAX
        {
            self.key = words.range(1);
            self.bytes.extend_from_slice(&bytes[..end + 2]);
        }
    }

    /// The key of the command that these bytes begin with, if it is alike.
    #[inline]
    fn key_of<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let (before, after) = (self.key.start, self.key.end);
        let alike = bytes.get(..self.bytes.len()).filter(|alike| !alike.is_empty())?;
        let is_alike =
            alike[after..] == self.bytes[after..] && alike[..before] == self.bytes[..before];
        is_alike.then(|| &alike[before..after])
    }
}

/// As Rust reads an `i64`: a sign if you like, digits, nothing else.
fn integer(word: &[u8]) -> Result<i64, ThrottleError> {
    let text = std::str::from_utf8(word).ok();
    let integer = text.and_then(|text| text.parse().ok());
    integer.ok_or_else(|| ThrottleError::NoInteger(String::from_utf8_lossy(word).into_owned()))
}
