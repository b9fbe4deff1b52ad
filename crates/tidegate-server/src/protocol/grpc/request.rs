//! Parses a rate limit request: borrowed from its bytes, and bounded.
//!
//! prost's derived decoder cannot be used: it decodes the two million empty descriptors that 4 MB may contain into 150 MB, and it
//! refuses a string that is not UTF-8. A test compares the results with prost's.
//!
//! Bound     Whatever the bytes, at most [`DESCRIPTORS_MAX`] descriptors of [`ENTRIES_MAX`] entries are kept.
//! Invariant Bytes that are not UTF-8 are replaced and not refused. Envoy forwards header values as they are, and admits a request
//!           that this server refuses, so an odd byte would get a client past a limit.

use super::fields::{Field, Fields, Malformed};
use super::proto::{RateLimitOverride, Unit};
use std::borrow::Cow;

pub use crate::matching::{DESCRIPTORS_MAX, ENTRIES_MAX};

/// An entry's key or value has at most this many bytes.
pub const TEXT_BYTES_MAX: usize = 4_096;
/// A domain has at most this many bytes.
pub const DOMAIN_BYTES_MAX: usize = 256;

/// A rate limit request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request<'a> {
    /// The namespace of the descriptors.
    pub domain: Cow<'a, str>,
    /// The descriptors to decide about.
    pub descriptors: Vec<Descriptor<'a>>,
    /// The cost as it was sent; 0 means 1.
    pub hits_addend: u32,
}

/// A descriptor: a list of entries that identifies what to limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Descriptor<'a> {
    /// Keys and values, outermost first.
    pub entries: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// A limit that replaces the configured one.
    pub limit: Option<RateLimitOverride>,
    /// The descriptor's cost, if it differs from the request's; 0 peeks.
    pub hits_addend: Option<u64>,
    /// Whether the cost is refunded.
    pub is_negative_hits: bool,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRequest {
    /// The bytes are not a message.
    #[error("the request is not a RateLimitRequest")]
    Malformed(#[from] Malformed),
    /// The domain is empty.
    #[error("rate limit domain must not be empty")]
    NoDomain,
    /// There are no descriptors.
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    /// The domain is too long.
    #[error("the domain has {bytes} bytes, and may have {DOMAIN_BYTES_MAX}")]
    LongDomain {
        /// Its length.
        bytes: usize,
    },
    /// There are too many descriptors.
    #[error("the request has more than {DESCRIPTORS_MAX} descriptors")]
    ManyDescriptors,
    /// A descriptor has too many entries.
    #[error("descriptor {descriptor} has more than {ENTRIES_MAX} entries")]
    ManyEntries {
        /// Its index, from 0.
        descriptor: usize,
    },
    /// A key or a value is too long.
    #[error(
        "descriptor {descriptor} has a key or a value of {bytes} bytes, and may have {TEXT_BYTES_MAX}"
    )]
    LongText {
        /// Its index, from 0.
        descriptor: usize,
        /// Its length.
        bytes: usize,
    },
    /// A descriptor's own limit has no unit.
    #[error("descriptor {descriptor} has a limit without a unit of time")]
    NoUnit {
        /// Its index, from 0.
        descriptor: usize,
    },
}

impl<'a> Request<'a> {
    /// Parses the bytes of a message.
    ///
    /// ```
    /// use tidegate_server::protocol::grpc::Request;
    ///
    /// let request = Request::read(b"\x0a\x02ap\x12\x08\x0a\x06\x0a\x01k\x12\x01v")?;
    /// assert_eq!(request.domain, "ap");
    /// assert_eq!(request.descriptors[0].entries, [("k".into(), "v".into())]);
    /// # Ok::<(), tidegate_server::protocol::grpc::BadRequest>(())
    /// ```
    pub fn read(bytes: &'a [u8]) -> Result<Self, BadRequest> {
        let mut request = Self::default();
        for field in Fields(bytes) {
            match field? {
                (1, Field::Bytes(domain)) if domain.len() > DOMAIN_BYTES_MAX => {
                    return Err(BadRequest::LongDomain { bytes: domain.len() });
                }
                (1, Field::Bytes(domain)) => request.domain = String::from_utf8_lossy(domain),
                (2, Field::Bytes(descriptor)) => request.add(descriptor)?,
                (3, Field::Number(hits_addend)) => request.hits_addend = low(hits_addend),
                (1..=3, _) => return Err(Malformed.into()),
                _ => {}
            }
        }
        request.checked()
    }

    fn add(&mut self, bytes: &'a [u8]) -> Result<(), BadRequest> {
        let descriptor = self.descriptors.len();
        if descriptor == DESCRIPTORS_MAX {
            return Err(BadRequest::ManyDescriptors);
        }
        self.descriptors.push(Descriptor::read(bytes, descriptor)?);
        Ok(())
    }

    fn checked(self) -> Result<Self, BadRequest> {
        if self.domain.is_empty() {
            return Err(BadRequest::NoDomain);
        }
        if self.descriptors.is_empty() {
            return Err(BadRequest::NoDescriptors);
        }
        for (descriptor, parsed) in self.descriptors.iter().enumerate() {
            if parsed.limit.is_some_and(|limit| limit.unit() == Unit::Unknown) {
                return Err(BadRequest::NoUnit { descriptor });
            }
        }
        Ok(self)
    }
}

impl<'a> Descriptor<'a> {
    fn read(bytes: &'a [u8], descriptor: usize) -> Result<Self, BadRequest> {
        let mut read = Self::default();
        for field in Fields(bytes) {
            match field? {
                (1, Field::Bytes(_)) if read.entries.len() == ENTRIES_MAX => {
                    return Err(BadRequest::ManyEntries { descriptor });
                }
                (1, Field::Bytes(entry)) => read.entries.push(read_entry(entry, descriptor)?),
                (2, Field::Bytes(limit)) => {
                    read_override(limit, read.limit.get_or_insert_default())?;
                }
                (3, Field::Bytes(value)) => {
                    read_wrapped(value, read.hits_addend.get_or_insert_default())?;
                }
                (4, Field::Number(is_negative)) => read.is_negative_hits = is_negative != 0,
                (1..=4, _) => return Err(Malformed.into()),
                _ => {}
            }
        }
        Ok(read)
    }
}

fn read_entry(bytes: &[u8], descriptor: usize) -> Result<(Cow<'_, str>, Cow<'_, str>), BadRequest> {
    let (mut key, mut value) = (Cow::default(), Cow::default());
    for field in Fields(bytes) {
        match field? {
            (1 | 2, Field::Bytes(text)) if text.len() > TEXT_BYTES_MAX => {
                return Err(BadRequest::LongText { descriptor, bytes: text.len() });
            }
            (1, Field::Bytes(text)) => key = String::from_utf8_lossy(text),
            (2, Field::Bytes(text)) => value = String::from_utf8_lossy(text),
            (1..=2, _) => return Err(Malformed.into()),
            _ => {}
        }
    }
    Ok((key, value))
}

/// Merges a part of a message that is sent in several parts: the last value of each field counts.
fn read_override(bytes: &[u8], limit: &mut RateLimitOverride) -> Result<(), Malformed> {
    for field in Fields(bytes) {
        match field? {
            (1, Field::Number(count)) => limit.requests_per_unit = low(count),
            (2, Field::Number(unit)) => limit.unit = low(unit).cast_signed(),
            (3, Field::Bytes(value)) => {
                let mut wide = u64::from(limit.unit_multiplier.unwrap_or_default());
                read_wrapped(value, &mut wide)?;
                limit.unit_multiplier = Some(low(wide));
            }
            (1..=3, _) => return Err(Malformed),
            _ => {}
        }
    }
    Ok(())
}

/// Parses `google.protobuf.UInt64Value` and the other wrappers of a number.
fn read_wrapped(bytes: &[u8], value: &mut u64) -> Result<(), Malformed> {
    for field in Fields(bytes) {
        match field? {
            (1, Field::Number(number)) => *value = number,
            (1, _) => return Err(Malformed),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the low half of a number that is too wide for its field, as protobuf requires.
#[expect(clippy::cast_possible_truncation, reason = "as the encoding says")]
fn low(number: u64) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use super::super::proto::{Entry, RateLimitDescriptor, RateLimitRequest};
    use super::*;
    use prost::Message;

    fn entry(key: &str, value: &str) -> Entry {
        Entry { key: key.to_owned(), value: value.to_owned() }
    }

    fn request(descriptors: usize, entries: usize, value_bytes: usize) -> RateLimitRequest {
        let value = "v".repeat(value_bytes);
        let descriptor = RateLimitDescriptor {
            entries: vec![entry("k", &value); entries],
            ..RateLimitDescriptor::default()
        };
        RateLimitRequest {
            domain: "d".to_owned(),
            descriptors: vec![descriptor; descriptors],
            hits_addend: 0,
        }
    }

    fn refusal(request: &RateLimitRequest) -> Option<String> {
        Request::read(&request.encode_to_vec()).err().map(|refused| refused.to_string())
    }

    #[test]
    fn a_message_that_prost_encodes_is_parsed() {
        let limit =
            RateLimitOverride { requests_per_unit: 9, unit: 7, unit_multiplier: Some(u32::MAX) };
        let mut sent = request(2, 2, 3);
        sent.hits_addend = u32::MAX;
        sent.descriptors[1].limit = Some(limit);
        sent.descriptors[1].hits_addend = Some(u64::MAX);
        sent.descriptors[1].is_negative_hits = true;
        let bytes = sent.encode_to_vec();
        let read = Request::read(&bytes).unwrap();
        assert_eq!((read.domain.as_ref(), read.hits_addend), ("d", u32::MAX));
        let entries: Vec<(Cow<'_, str>, Cow<'_, str>)> = vec![("k".into(), "vvv".into()); 2];
        let plain = Descriptor { entries: entries.clone(), ..Descriptor::default() };
        let full = Descriptor {
            entries,
            limit: Some(limit),
            hits_addend: Some(u64::MAX),
            is_negative_hits: true,
        };
        assert_eq!(read.descriptors, [plain, full]);
    }

    #[test]
    fn a_cost_of_0_differs_from_no_cost() {
        let mut sent = request(1, 1, 1);
        sent.descriptors[0].hits_addend = Some(0);
        let bytes = sent.encode_to_vec();
        assert_eq!(Request::read(&bytes).unwrap().descriptors[0].hits_addend, Some(0));
    }

    #[test]
    fn the_parts_of_a_message_are_merged() {
        let pieces: &[u8] = &[0x0a, 1, b'd', 0x12, 8, 0x12, 2, 0x08, 5, 0x12, 2, 0x10, 2, 0x1a, 0];
        // The last two bytes are a field with the wrong encoding.
        assert_eq!(Request::read(pieces), Err(BadRequest::Malformed(Malformed)));
        let read = Request::read(&pieces[..13]).unwrap();
        let limit = RateLimitOverride { requests_per_unit: 5, unit: 2, unit_multiplier: None };
        assert_eq!(read.descriptors[0].limit, Some(limit));
    }

    #[test]
    fn the_bounds_are_inclusive() {
        for (descriptors, entries, bytes) in
            [(DESCRIPTORS_MAX, 1, 1), (1, ENTRIES_MAX, 1), (1, 1, TEXT_BYTES_MAX)]
        {
            assert_eq!(refusal(&request(descriptors, entries, bytes)), None);
        }
        let text = |descriptors, entries, bytes| refusal(&request(descriptors, entries, bytes));
        let many = "the request has more than 64 descriptors";
        assert_eq!(text(DESCRIPTORS_MAX + 1, 1, 1).as_deref(), Some(many));
        assert_eq!(text(10_000, 1, 1).as_deref(), Some(many));
        let entries = "descriptor 0 has more than 16 entries";
        assert_eq!(text(1, ENTRIES_MAX + 1, 1).as_deref(), Some(entries));
        let long = "descriptor 0 has a key or a value of 4097 bytes, and may have 4096";
        assert_eq!(text(1, 1, TEXT_BYTES_MAX + 1).as_deref(), Some(long));
        let longer = "descriptor 0 has a key or a value of 1048576 bytes, and may have 4096";
        assert_eq!(text(1, 1, 1 << 20).as_deref(), Some(longer));
    }

    #[test]
    fn a_domain_is_neither_empty_nor_too_long() {
        let of = |bytes: usize| RateLimitRequest { domain: "d".repeat(bytes), ..request(1, 1, 1) };
        assert_eq!(refusal(&of(0)).as_deref(), Some("rate limit domain must not be empty"));
        assert_eq!(refusal(&of(DOMAIN_BYTES_MAX)), None);
        let long = "the domain has 257 bytes, and may have 256";
        assert_eq!(refusal(&of(DOMAIN_BYTES_MAX + 1)).as_deref(), Some(long));
        let nothing = "rate limit descriptor list must not be empty";
        assert_eq!(refusal(&request(0, 0, 0)).as_deref(), Some(nothing));
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_replaced_and_not_refused() {
        let bytes: &[u8] = &[0x0a, 1, b'd', 0x12, 8, 0x0a, 6, 0x0a, 1, b'k', 0x12, 1, 0xff];
        let read = Request::read(bytes).unwrap();
        assert_eq!(read.descriptors[0].entries, [("k".into(), "\u{fffd}".into())]);
    }

    #[test]
    fn two_million_empty_descriptors_take_no_memory() {
        let bytes = [0x12, 0].repeat(2 << 20);
        assert_eq!(Request::read(&bytes), Err(BadRequest::ManyDescriptors));
    }

    #[test]
    fn a_limit_has_a_unit() {
        let mut sent = request(1, 1, 1);
        sent.descriptors[0].limit =
            Some(RateLimitOverride { requests_per_unit: 1, unit: 0, unit_multiplier: None });
        let text = "descriptor 0 has a limit without a unit of time";
        assert_eq!(refusal(&sent).as_deref(), Some(text));
    }
}
