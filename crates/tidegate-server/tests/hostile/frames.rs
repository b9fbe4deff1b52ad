//! HTTP/2 by hand: a library would not say what an attacker says.

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Settings that set nothing.
pub(crate) const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS_KIND: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

/// The last of a stream: a flag of [`DATA`] and [`HEADERS`].
pub(crate) const END_STREAM: u8 = 1;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// A call of the rate limit service begins.
pub(crate) fn headers(stream: u32, is_all: bool) -> Vec<u8> {
    let literal = |name: &[u8], text: &[u8]| {
        let len = u8::try_from(text.len()).expect("it is short");
        [name, &[len], text].concat()
    };
    let kind = [&[0x0f, 16][..], &literal(&[], b"application/grpc")].concat();
    let path = literal(&[0x04], tidegate_server::grpc::PATH.as_bytes());
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

/// The head of a frame, without its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

/// The frames that are here whole, and how many bytes they have.
pub(crate) fn whole(bytes: &[u8]) -> (Vec<Head>, usize) {
    let (mut frames, mut at) = (Vec::new(), 0);
    while let [x, y, z, kind, flags, a, b, c, d, ..] = bytes[at..] {
        let end = at + 9 + (usize::from(x) << 16 | usize::from(y) << 8 | usize::from(z));
        if end > bytes.len() {
            break;
        }
        frames.push(Head { kind, flags, stream: u32::from_be_bytes([a, b, c, d]) });
        at = end;
    }
    (frames, at)
}
