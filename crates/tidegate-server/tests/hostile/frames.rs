//! Writes HTTP/2 frames by hand, because no library sends an attacker's.

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Settings that set nothing.
pub(crate) const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
/// Settings that have the server say each header in full, so that it can be read without what was said before:
/// `HEADER_TABLE_SIZE` (1) is 0.
pub(crate) const NO_TABLE: [u8; 15] = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS_KIND: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

/// Why the server says goodbye: the peer does what nobody may, or too much of what one may.
pub(crate) const PROTOCOL_ERROR: u32 = 1;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

/// What a gRPC answer ends with.
pub(crate) const OK: u32 = 0;
pub(crate) const RESOURCE_EXHAUSTED: u32 = 8;

/// The last of a stream: a flag of [`DATA`] and [`HEADERS`].
pub(crate) const END_STREAM: u8 = 1;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// A call of the rate limit service begins.
pub(crate) fn headers(stream: u32, is_all: bool) -> Vec<u8> {
    headers_of(tidegate_server::protocol::grpc::PATH, stream, is_all)
}

/// A call of this method begins.
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

/// A call that is answered with a message: one descriptor of the domain `d`, whose entry `a` is `b`.
pub(crate) fn call(stream: u32) -> Vec<u8> {
    let message = b"\0\0\0\0\x0d\x0a\x01d\x12\x08\x0a\x06\x0a\x01a\x12\x01b";
    [headers(stream, false), frame(DATA, END_STREAM, stream, message)].concat()
}

/// So many calls, after so many others.
pub(crate) fn calls(others: usize, number: usize) -> Vec<u8> {
    (others..others + number).flat_map(|number| call(stream(number))).collect()
}

/// A client's streams have odd numbers.
pub(crate) fn stream(number: usize) -> u32 {
    u32::try_from(2 * number + 1).expect("there are not so many")
}

/// Which kinds of frames these are; the last may be a part.
pub(crate) fn kinds(bytes: &[u8]) -> Vec<u8> {
    let (frames, length) = whole(bytes);
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

/// The frames that are here whole, and how many bytes they have.
pub(crate) fn whole(bytes: &[u8]) -> (Vec<Frame<'_>>, usize) {
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

/// The server says goodbye.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Goodbye {
    /// How many streams it has looked at.
    pub(crate) streams: u32,
    pub(crate) why: u32,
}

/// Its last goodbye, if there is one.
pub(crate) fn goodbye(bytes: &[u8]) -> Option<Goodbye> {
    let last = whole(bytes).0.into_iter().rfind(|frame| frame.kind == GOAWAY)?;
    let number = |at: usize| u32::from_be_bytes(last.payload[at..at + 4].try_into().unwrap());
    Some(Goodbye { streams: number(0).div_ceil(2), why: number(4) })
}

/// What gRPC says at the end of each answer, where no table of headers is kept (see [`NO_TABLE`]): the name, packed as
/// HTTP/2 packs texts, and a digit, packed as well.
const GRPC_STATUS: [u8; 9] = [0x88, 0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f];
const DIGITS: [(u8, u32); 2] = [(0x07, 0), (0x7b, 8)];

/// The status in these headers, if it is OK (0) or `RESOURCE_EXHAUSTED` (8); nothing if there is none.
pub(crate) fn grpc_status(headers: &[u8]) -> Option<u32> {
    let at = headers.windows(GRPC_STATUS.len()).position(|some| some == GRPC_STATUS)?;
    let [0x81, digit, ..] = headers[at + GRPC_STATUS.len()..] else {
        panic!("no status of one digit: {headers:?}");
    };
    let known = DIGITS.iter().find(|(packed, _)| *packed == digit);
    Some(known.unwrap_or_else(|| panic!("another status: {headers:?}")).1)
}
