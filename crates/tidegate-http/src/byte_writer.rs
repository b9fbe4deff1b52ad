//! Where header values, bodies and keys are written to.

use smallvec::{Array, SmallVec};

/// A growable buffer that takes bytes, decimal numbers and JSON strings.
pub trait ByteWriter {
    /// Appends these bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Appends a number in decimal digits.
    #[inline]
    fn put_number(&mut self, number: u64) {
        self.put(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Appends a text as a JSON string, with quotes.
    fn put_json(&mut self, text: &str) {
        self.put(b"\"");
        let mut rest = text.as_bytes();
        while let Some(place) = rest.iter().position(|b| matches!(b, b'"' | b'\\' | ..b' ')) {
            let (plain, special) = rest.split_at(place);
            self.put(plain);
            self.put(&escape(special[0]));
            rest = &special[1..];
        }
        self.put(rest);
        self.put(b"\"");
    }
}

/// The escape sequence of a byte that a JSON string cannot contain as it is.
fn escape(byte: u8) -> Vec<u8> {
    match byte {
        b'"' | b'\\' => vec![b'\\', byte],
        b'\n' => b"\\n".to_vec(),
        b'\r' => b"\\r".to_vec(),
        b'\t' => b"\\t".to_vec(),
        _ => format!("\\u{byte:04x}").into_bytes(),
    }
}

impl ByteWriter for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl<A: Array<Item = u8>> ByteWriter for SmallVec<A> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_strings_contain_no_bare_control_characters() {
        let mut out = Vec::new();
        out.put_json("a\u{1}\t\\é");
        assert_eq!(String::from_utf8(out).unwrap(), "\"a\\u0001\\t\\\\é\"");
    }
}
