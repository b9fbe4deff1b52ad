//! Answers, as they come out of a stream of bytes.

mod http;
mod resp;

use super::question::{Meaning, Question};
use super::tally::Answer;
use super::target::{Target, Wire};

/// What comes is not an answer, or too long: the connection is of no more use.
pub(super) type Broken = String;

/// No answer is longer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Reads answers of one wire.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reader {
    Resp(Meaning),
    Http,
}

impl Reader {
    /// gRPC is not read with this, but as HTTP/2.
    pub(super) fn new(target: &Target, question: &Question) -> Self {
        match target.wire {
            Wire::Resp => Self::Resp(question.meaning),
            Wire::Http | Wire::Grpc => Self::Http,
        }
    }

    /// The first answer and its length, or nothing if more bytes are needed.
    pub(super) fn read(self, bytes: &[u8]) -> Result<Option<(usize, Answer)>, Broken> {
        let read = match self {
            Self::Resp(meaning) => resp::read(bytes, meaning)?,
            Self::Http => http::read(bytes)?,
        };
        if read.is_none() && bytes.len() >= ANSWER_BYTES_MAX {
            return Err(format!("an answer of more than {ANSWER_BYTES_MAX} bytes"));
        }
        Ok(read)
    }
}
