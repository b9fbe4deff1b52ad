//! HTTP/2 frames written by hand, because no library sends those of an attacker.

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty SETTINGS frame.
pub(crate) const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
/// A SETTINGS frame with `HEADER_TABLE_SIZE` (1) = 0: the server sends each header in full, so a test can decode it without
/// the earlier headers.
pub(crate) const NO_HEADER_TABLE: [u8; 15] = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS_TYPE: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

/// Error codes of GOAWAY: the client violated the protocol, or sent too much.
pub(crate) const PROTOCOL_ERROR: u32 = 1;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

/// Status codes of gRPC.
pub(crate) const OK: u32 = 0;
pub(crate) const RESOURCE_EXHAUSTED: u32 = 8;

/// Flag of the last [`DATA`] or [`HEADERS`] frame of a stream.
pub(crate) const END_STREAM: u8 = 1;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// Returns the headers of a call of the rate limit service. `is_all` ends the stream.
pub(crate) fn headers(stream: u32, is_all: bool) -> Vec<u8> {
    headers_of(tidegate_server::protocol::grpc::PATH, stream, is_all)
}

/// Returns the headers of a call of the method `path`.
pub(crate) fn headers_of(path: &str, stream: u32, is_all: bool) -> Vec<u8> {
    let literal = |name: &[u8], text: &[u8]| {
        let len = u8::try_from(text.len()).expect("it is short");
        [name, &[len], text].concat()
    };
    let kind = [&[0x0f, 16][..], &literal(&[], b"application/grpc")].concat();
    let path = literal(&[0x04], path.as_bytes());
    let block = [&[0x83, 0x86][..], &path, &literal(&[0x01], b"tests"), &kind].concat();
    frame(1, if is_all { 5 } else { 4 }, stream, &block)
}

/// Returns a valid call: one descriptor of the domain `d` with the entry `a=b`.
pub(crate) fn call(stream: u32) -> Vec<u8> {
    let message = b"\0\0\0\0\x0d\x0a\x01d\x12\x08\x0a\x06\x0a\x01a\x12\x01b";
    [headers(stream, false), frame(DATA, END_STREAM, stream, message)].concat()
}

/// Returns `number` calls, on the streams after those of `others` earlier calls.
pub(crate) fn calls(others: usize, number: usize) -> Vec<u8> {
    (others..others + number).flat_map(|number| call(stream(number))).collect()
}

/// Returns the id of a client's stream `number`, counted from 0. Clients use odd ids.
pub(crate) fn stream(number: usize) -> u32 {
    u32::try_from(2 * number + 1).expect("the number of streams is small")
}

/// Returns the types of all frames; the last frame may be incomplete.
pub(crate) fn frame_types(bytes: &[u8]) -> Vec<u8> {
    let (frames, length) = complete_frames(bytes);
    let mut kinds: Vec<u8> = frames.iter().map(|frame| frame.kind).collect();
    if let [_, _, _, kind, ..] = bytes[length..] {
        kinds.push(kind);
    }
    kinds
}

/// A frame, without its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: &'a [u8],
}

/// Returns the complete frames, and their length in bytes.
pub(crate) fn complete_frames(bytes: &[u8]) -> (Vec<Frame<'_>>, usize) {
    let (mut frames, mut at) = (Vec::new(), 0);
    while let [x, y, z, kind, flags, a, b, c, d, ..] = bytes[at..] {
        let end = at + 9 + (usize::from(x) << 16 | usize::from(y) << 8 | usize::from(z));
        if end > bytes.len() {
            break;
        }
        let (stream, payload) = (u32::from_be_bytes([a, b, c, d]), &bytes[at + 9..end]);
        frames.push(Frame { kind, flags, stream, payload });
        at = end;
    }
    (frames, at)
}

/// A GOAWAY frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Goaway {
    /// Number of streams that the server processed.
    pub(crate) streams: u32,
    pub(crate) why: u32,
}

/// Returns the last GOAWAY frame, if there is one.
pub(crate) fn goaway(bytes: &[u8]) -> Option<Goaway> {
    let last = complete_frames(bytes).0.into_iter().rfind(|frame| frame.kind == GOAWAY)?;
    let number = |at: usize| u32::from_be_bytes(last.payload[at..at + 4].try_into().unwrap());
    Some(Goaway { streams: number(0).div_ceil(2), why: number(4) })
}

/// The header `grpc-status` in HPACK without a dynamic table (see [`NO_HEADER_TABLE`]): the Huffman-coded name; a Huffman-coded
/// digit follows.
const GRPC_STATUS: [u8; 9] = [0x88, 0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f];
const DIGITS: [(u8, u32); 2] = [(0x07, 0), (0x7b, 8)];

/// Returns the gRPC status in these headers: OK (0) or `RESOURCE_EXHAUSTED` (8). Returns `None` if there is none.
pub(crate) fn grpc_status(headers: &[u8]) -> Option<u32> {
    let at = headers.windows(GRPC_STATUS.len()).position(|some| some == GRPC_STATUS)?;
    let [0x81, digit, ..] = headers[at + GRPC_STATUS.len()..] else {
        panic!("no status of one digit: {headers:?}");
    };
    let known = DIGITS.iter().find(|(packed, _)| *packed == digit);
    Some(known.unwrap_or_else(|| panic!("another status: {headers:?}")).1)
}
