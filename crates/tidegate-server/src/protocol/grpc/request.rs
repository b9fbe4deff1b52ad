//! A rate limit request as it is read: borrowed from the bytes that came, and bounded before it is kept.
//!
//! Always   Whatever the bytes, no more is kept than the caps allow: in 4 MB there is room for two million empty
//!          descriptors, which prost would make 150 MB of.
//! Always   What prost reads, this reads the same ([`super::proto`]), but for text that is not UTF-8: where prost
//!          refuses the request, this replaces the bytes. Envoy sends headers' bytes as they came, and lets
//!          through what we refuse to answer: nobody must get past a limit by an odd byte.

use super::proto::{RateLimitOverride, Unit};
use super::wire::{Field, Malformed, Wire};
use std::borrow::Cow;

pub use crate::matching::{DESCRIPTORS_MAX, ENTRIES_MAX};

/// An entry's key or value has at most this many bytes.
pub const TEXT_BYTES_MAX: usize = 4_096;
/// A domain has at most this many bytes.
pub const DOMAIN_BYTES_MAX: usize = 256;

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request<'a> {
    /// Whose descriptors these are.
    pub domain: Cow<'a, str>,
    /// What is asked about.
    pub descriptors: Vec<Descriptor<'a>>,
    /// What it costs, as it was sent: 0 is 1.
    pub hits_addend: u32,
}

/// One thing that is asked about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Descriptor<'a> {
    /// Keys and values, outermost first.
    pub entries: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// A limit that takes the place of what is configured.
    pub limit: Option<RateLimitOverride>,
    /// What it costs, if not what the request does; 0 asks without charging.
    pub hits_addend: Option<u64>,
    /// Whether the cost is given back.
    pub is_negative_hits: bool,
}

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRequest {
    /// It is not a message.
    #[error("the request is not a RateLimitRequest")]
    Malformed(#[from] Malformed),
    /// It does not say whose descriptors these are.
    #[error("rate limit domain must not be empty")]
    NoDomain,
    /// It asks about nothing.
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    /// The domain is too long.
    #[error("the domain has {bytes} bytes, and may have {DOMAIN_BYTES_MAX}")]
    LongDomain {
        /// How long it is.
        bytes: usize,
    },
    /// There are too many descriptors.
    #[error("the request has more than {DESCRIPTORS_MAX} descriptors")]
    ManyDescriptors,
    /// A descriptor has too many entries.
    #[error("descriptor {descriptor} has more than {ENTRIES_MAX} entries")]
    ManyEntries {
        /// Which, counted from 0.
        descriptor: usize,
    },
    /// A key or a value is too long.
    #[error(
        "descriptor {descriptor} has a key or a value of {bytes} bytes, and may have {TEXT_BYTES_MAX}"
    )]
    LongText {
        /// Which, counted from 0.
        descriptor: usize,
        /// How long it is.
        bytes: usize,
    },
    /// A limit comes with the descriptor, and it is none.
    #[error("descriptor {descriptor} has a limit without a unit of time")]
    NoUnit {
        /// Which, counted from 0.
        descriptor: usize,
    },
}

impl<'a> Request<'a> {
    /// Reads the bytes of a message.
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
        for field in Wire(bytes) {
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
        for (descriptor, told) in self.descriptors.iter().enumerate() {
            if told.limit.is_some_and(|limit| limit.unit() == Unit::Unknown) {
                return Err(BadRequest::NoUnit { descriptor });
            }
        }
        Ok(self)
    }
}

impl<'a> Descriptor<'a> {
    fn read(bytes: &'a [u8], descriptor: usize) -> Result<Self, BadRequest> {
        let mut read = Self::default();
        for field in Wire(bytes) {
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
    for field in Wire(bytes) {
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

/// A message that comes in pieces is all of them together, the last word on each field.
fn read_override(bytes: &[u8], limit: &mut RateLimitOverride) -> Result<(), Malformed> {
    for field in Wire(bytes) {
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

/// `google.protobuf.UInt64Value` and its like.
fn read_wrapped(bytes: &[u8], value: &mut u64) -> Result<(), Malformed> {
    for field in Wire(bytes) {
        match field? {
            (1, Field::Number(number)) => *value = number,
            (1, _) => return Err(Malformed),
            _ => {}
        }
    }
    Ok(())
}

/// Protobuf keeps the low half of a number that is too wide for its field.
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
    fn what_prost_writes_is_read() {
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
    fn a_cost_of_nothing_differs_from_no_cost() {
        let mut sent = request(1, 1, 1);
        sent.descriptors[0].hits_addend = Some(0);
        let bytes = sent.encode_to_vec();
        assert_eq!(Request::read(&bytes).unwrap().descriptors[0].hits_addend, Some(0));
    }

    #[test]
    fn a_message_in_pieces_is_all_of_them_together() {
        let pieces: &[u8] = &[0x0a, 1, b'd', 0x12, 8, 0x12, 2, 0x08, 5, 0x12, 2, 0x10, 2, 0x1a, 0];
        // The last two bytes are a field that no descriptor list has in this form.
        assert_eq!(Request::read(pieces), Err(BadRequest::Malformed(Malformed)));
        let read = Request::read(&pieces[..13]).unwrap();
        let limit = RateLimitOverride { requests_per_unit: 5, unit: 2, unit_multiplier: None };
        assert_eq!(read.descriptors[0].limit, Some(limit));
    }

    #[test]
    fn the_caps_hold_at_their_edges() {
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
    fn a_domain_has_something_in_it_and_not_too_much() {
        let of = |bytes: usize| RateLimitRequest { domain: "d".repeat(bytes), ..request(1, 1, 1) };
        assert_eq!(refusal(&of(0)).as_deref(), Some("rate limit domain must not be empty"));
        assert_eq!(refusal(&of(DOMAIN_BYTES_MAX)), None);
        let long = "the domain has 257 bytes, and may have 256";
        assert_eq!(refusal(&of(DOMAIN_BYTES_MAX + 1)).as_deref(), Some(long));
        let nothing = "rate limit descriptor list must not be empty";
        assert_eq!(refusal(&request(0, 0, 0)).as_deref(), Some(nothing));
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_and_not_refused() {
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
