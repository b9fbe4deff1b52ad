//! Protobuf's encoding: the fields of a message, one after another.
//!
//! Always   Any bytes are read to their end or refused, without recursion and without memory of its own.

/// The bytes of a message, as an iterator over its fields.
pub(super) struct Wire<'a>(pub(super) &'a [u8]);

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<'a> {
    /// A number of any width.
    Number(u64),
    /// A text, bytes, or a message.
    Bytes(&'a [u8]),
    /// Something that none of our messages has.
    Other,
}

/// These bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not a protobuf message")]
pub struct Malformed;

/// How a field is encoded.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const LENGTH: u64 = 2;
const GROUP_START: u64 = 3;
const GROUP_END: u64 = 4;
const FIXED_32: u64 = 5;

/// Groups within groups; prost stops there too.
const GROUPS_MAX: usize = 100;

impl<'a> Iterator for Wire<'a> {
    type Item = Result<(u32, Field<'a>), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| self.field())
    }
}

impl<'a> Wire<'a> {
    #[inline]
    fn field(&mut self) -> Result<(u32, Field<'a>), Malformed> {
        let (tag, encoding) = self.key()?;
        let field = match encoding {
            VARINT => Field::Number(self.varint()?),
            LENGTH => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Field::Bytes(self.take(length)?)
            }
            _ => self.skip(tag, encoding)?,
        };
        Ok((tag, field))
    }

    #[inline]
    fn key(&mut self) -> Result<(u32, u64), Malformed> {
        let key = u32::try_from(self.varint()?).map_err(|_| Malformed)?;
        if key < 8 { Err(Malformed) } else { Ok((key >> 3, u64::from(key & 7))) }
    }

    #[cold]
    fn skip(&mut self, tag: u32, encoding: u64) -> Result<Field<'a>, Malformed> {
        match encoding {
            FIXED_64 => self.take(8)?,
            FIXED_32 => self.take(4)?,
            GROUP_START => self.skip_group(tag)?,
            _ => return Err(Malformed),
        };
        Ok(Field::Other)
    }

    fn skip_group(&mut self, tag: u32) -> Result<&'a [u8], Malformed> {
        let mut open = vec![tag];
        while let Some(innermost) = open.last().copied() {
            let (tag, encoding) = self.key()?;
            match encoding {
                VARINT => drop(self.varint()?),
                LENGTH => {
                    let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                    self.take(length)?;
                }
                FIXED_64 => drop(self.take(8)?),
                FIXED_32 => drop(self.take(4)?),
                GROUP_START if open.len() < GROUPS_MAX => open.push(tag),
                GROUP_END if tag == innermost => drop(open.pop()),
                _ => return Err(Malformed),
            }
        }
        Ok(&[])
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for (place, byte) in self.0.iter().copied().enumerate().take(10) {
            // The tenth byte has room for one bit.
            if place == 9 && byte > 1 {
                return Err(Malformed);
            }
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                self.0 = &self.0[place + 1..];
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<(u32, Field<'_>)>, Malformed> {
        Wire(bytes).take(100).collect()
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
    fn what_nobody_asked_for_is_skipped() {
        let fixed = [0x09, 1, 2, 3, 4, 5, 6, 7, 8, 0x15, 1, 2, 3, 4];
        assert_eq!(fields(&fixed), Ok(vec![(1, Field::Other), (2, Field::Other)]));
        let group = [0x0b, 0x08, 1, 0x13, 0x12, 1, 9, 0x14, 0x0c, 0x10, 7];
        assert_eq!(fields(&group), Ok(vec![(1, Field::Other), (2, Field::Number(7))]));
    }

    #[test]
    fn the_widest_number_fits_and_no_wider_one() {
        let mut bytes = [0xff; 11];
        bytes[0] = 0x08;
        bytes[10] = 1;
        assert_eq!(fields(&bytes), Ok(vec![(1, Field::Number(u64::MAX))]));
        bytes[10] = 2;
        assert_eq!(fields(&bytes), Err(Malformed));
    }

    #[test]
    fn what_breaks_off_or_makes_no_sense_is_refused() {
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
    fn groups_may_be_nested_so_deep_and_no_deeper() {
        let nested = |depth: usize| [vec![0x0b; depth], vec![0x0c; depth]].concat();
        assert_eq!(fields(&nested(GROUPS_MAX)), Ok(vec![(1, Field::Other)]));
        assert_eq!(fields(&nested(GROUPS_MAX + 1)), Err(Malformed));
    }
}
