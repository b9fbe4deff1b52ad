//! Parses replies from a stream of bytes.

mod http;
mod resp;

use super::request::{BenchRequest, ReplyMeaning};
use super::stats::Reply;
use super::target::{Target, Wire};

/// Why a connection cannot be used any more: a reply is malformed or too long.
pub(super) type ConnectionError = String;

/// Maximum length of a reply.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// Parses the replies of one protocol.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reader {
    Resp(ReplyMeaning),
    Http,
}

impl Reader {
    /// Makes a parser for the target's protocol. gRPC does not use it: it is read with an HTTP/2 library.
    pub(super) fn new(target: &Target, request: &BenchRequest) -> Self {
        match target.wire {
            Wire::Resp => Self::Resp(request.meaning),
            Wire::Http | Wire::Grpc => Self::Http,
        }
    }

    /// Returns the first reply and its length, or `None` if more bytes are needed.
    pub(super) fn read(self, bytes: &[u8]) -> Result<Option<(usize, Reply)>, ConnectionError> {
        let read = match self {
            Self::Resp(meaning) => resp::read(bytes, meaning)?,
            Self::Http => http::read(bytes)?,
        };
        if read.is_none() && bytes.len() >= REPLY_BYTES_MAX {
            return Err(format!("a reply is longer than {REPLY_BYTES_MAX} bytes"));
        }
        Ok(read)
    }
}
