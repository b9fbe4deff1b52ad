//! The codec of `ShouldRateLimit`: requests stay bytes, prost encodes responses.
//!
//! A request's bytes are not copied and not parsed here: [`Request`](super::Request) parses them, with bounds that prost lacks.

use super::proto::RateLimitResponse;
use bytes::{Buf, Bytes};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

/// Initial size of buffers. Most requests and responses fit; tonic's default is 8 KB.
const BUFFER_BYTES: usize = 512;
/// Length of encoded messages at which tonic sends them: its default.
const YIELD_BYTES: usize = 32 << 10;

/// The codec of `ShouldRateLimit`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestBytes;

fn settings() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
}

impl Codec for RequestBytes {
    type Encode = RateLimitResponse;
    type Decode = Bytes;
    type Encoder = ProstEncoder<RateLimitResponse>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(settings())
    }

    fn decoder(&mut self) -> Self::Decoder {
        *self
    }
}

impl Decoder for RequestBytes {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(source.copy_to_bytes(source.remaining())))
    }

    fn buffer_settings(&self) -> BufferSettings {
        settings()
    }
}
