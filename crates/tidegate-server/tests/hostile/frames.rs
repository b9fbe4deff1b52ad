//! HTTP/2 by hand: a library would not say what an attacker says.

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Settings that set nothing.
pub(crate) const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

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

/// Which kinds of frames these are; the last may be a part.
pub(crate) fn kinds(mut bytes: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while let [a, b, c, kind, ..] = *bytes {
        kinds.push(kind);
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        bytes = bytes.get(9 + length..).unwrap_or_default();
    }
    kinds
}
