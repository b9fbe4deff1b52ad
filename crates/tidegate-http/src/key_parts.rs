//! The text of a key that is made of parts of a request.
//!
//! Invariant Different part values make different keys. The layers and the server write keys in the same way, so they can
//!           share a limit in Redis.

use crate::ByteWriter;

/// Appends part number `index` of a key with several parts: parts are separated by `|`, with `\` before each `|` or `\`
/// in a part.
pub fn put_key_part(out: &mut impl ByteWriter, index: usize, value: &[u8]) {
    if index > 0 {
        out.put(b"|");
    }
    for byte in value {
        if matches!(byte, b'|' | b'\\') {
            out.put(b"\\");
        }
        out.put(&[*byte]);
    }
}

/// Returns the value of a header that occurs exactly once, without surrounding blanks.
///
/// A header that occurs twice has no value. The service behind the limit would use one of the two, and a client that adds
/// a random second value would get a new key with every request.
#[inline]
pub fn single_value<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    let mut values = values.into_iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.trim_ascii())
}
