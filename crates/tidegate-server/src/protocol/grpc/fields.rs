//! Iterates over the fields of a protobuf message without copying them. prost decodes numbers and tags, and skips unknown fields.
//!
//! Bound     No allocation, and at most 100 groups within groups, as in prost.

use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// The bytes of a message, as an iterator over its fields.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<'a> {
    /// A number of any width.
    Number(u64),
    /// A string, bytes, or a message.
    Bytes(&'a [u8]),
    /// An encoding that no field of our messages has.
    Other,
}

/// The bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not a protobuf message")]
pub struct Malformed;

impl From<DecodeError> for Malformed {
    fn from(_: DecodeError) -> Self {
        Self
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Field<'a>), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| self.field())
    }
}

impl<'a> Fields<'a> {
    #[inline]
    fn field(&mut self) -> Result<(u32, Field<'a>), Malformed> {
        let (tag, wire_type) = decode_key(&mut self.0)?;
        let field = match wire_type {
            WireType::Varint => Field::Number(decode_varint(&mut self.0)?),
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut self.0)?).map_err(|_| Malformed)?;
                let (value, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
                self.0 = rest;
                Field::Bytes(value)
            }
            _ => {
                skip_field(wire_type, tag, &mut self.0, DecodeContext::default())?;
                Field::Other
            }
        };
        Ok((tag, field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<(u32, Field<'_>)>, Malformed> {
        Fields(bytes).take(100).collect()
    }

    #[test]
    fn numbers_and_bytes_are_read_with_their_tags() {
        let read = fields(&[0x08, 0xac, 0x02, 0x12, 2, b'h', b'i', 0x98, 0x06, 1]);
        let hi: &[u8] = b"hi";
        assert_eq!(
            read,
            Ok(vec![(1, Field::Number(300)), (2, Field::Bytes(hi)), (99, Field::Number(1))])
        );
    }

    #[test]
    fn fields_of_other_encodings_are_skipped() {
        let fixed = [0x09, 1, 2, 3, 4, 5, 6, 7, 8, 0x15, 1, 2, 3, 4];
        assert_eq!(fields(&fixed), Ok(vec![(1, Field::Other), (2, Field::Other)]));
        let group = [0x0b, 0x08, 1, 0x13, 0x12, 1, 9, 0x14, 0x0c, 0x10, 7];
        assert_eq!(fields(&group), Ok(vec![(1, Field::Other), (2, Field::Number(7))]));
    }

    #[test]
    fn the_widest_number_fits_and_a_wider_one_does_not() {
        let mut bytes = [0xff; 11];
        bytes[0] = 0x08;
        bytes[10] = 1;
        assert_eq!(fields(&bytes), Ok(vec![(1, Field::Number(u64::MAX))]));
        bytes[10] = 2;
        assert_eq!(fields(&bytes), Err(Malformed));
    }

    #[test]
    fn incomplete_and_invalid_fields_are_refused() {
        let bad: &[&[u8]] = &[
            &[0x08],
            &[0x08, 0x80],
            &[0x12, 2, 1],
            &[0x00, 1],
            &[0x0c],
            &[0x0e],
            &[0x0b, 0x14],
            &[0x0b, 0x08, 1],
            &[0x09, 1, 2],
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        ];
        for bytes in bad {
            assert_eq!(fields(bytes), Err(Malformed), "{bytes:?}");
        }
    }

    #[test]
    fn groups_may_be_nested_a_hundred_deep_and_no_deeper() {
        let nested = |depth: usize| [vec![0x0b; depth], vec![0x0c; depth]].concat();
        assert_eq!(fields(&nested(100)), Ok(vec![(1, Field::Other)]));
        assert_eq!(fields(&nested(101)), Err(Malformed));
    }
}
