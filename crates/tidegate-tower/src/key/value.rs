//! The key of one request: what a limiter is asked by.
//!
//! Always   The same text is the same key, whichever layer asks and wherever it has the text from. So a limit has its addresses
//!          as numbers or as texts, once and for all: one that nobody else can ask has numbers, because to write an address out
//!          and to hash its digits takes longer.

use crate::short::Short;
use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::net::Ipv4Addr;

#[derive(Clone)]
pub(crate) enum KeyValue {
    /// An address that is the whole key. It is written out for who wants to read it.
    V4(Ipv4Addr),
    /// What everybody writes: hashed as these bytes are, so that a limiter may be asked by them elsewhere, too.
    Text(Short),
}

/// Set in the number of an address, and in no length: a text is hashed with its length first, so no text is an address.
const ADDRESS: u64 = 1 << 63;

impl KeyValue {
    /// Of those who have no key and share one.
    pub(crate) const SHARED: Self = Self::Text(Short::new());

    /// What is written so. Where nobody else asks, an address is a number, whoever has written it out.
    #[inline]
    pub(crate) fn of_text(text: Short, is_own: bool) -> Self {
        if is_own && let Some(ip) = address(text.as_bytes()) {
            return Self::V4(ip);
        }
        Self::Text(text)
    }

    pub(crate) fn text(&self) -> Cow<'_, [u8]> {
        match self {
            Self::V4(ip) => Cow::Owned(ip.to_string().into_bytes()),
            Self::Text(text) => Cow::Borrowed(text.as_bytes()),
        }
    }
}

/// An address, if it is written as everybody writes it: there is no other text for it.
fn address(text: &[u8]) -> Option<Ipv4Addr> {
    // Most texts are none, and end here.
    if !text.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

impl Hash for KeyValue {
    #[inline]
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        match self {
            Self::V4(ip) => hasher.write_u64(ADDRESS | u64::from(ip.to_bits())),
            Self::Text(text) => text.as_bytes().hash(hasher),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::AddressBits;
    use crate::short::Out;
    use proptest::prelude::*;
    use tidegate::{Limiter, ManualClock};

    fn short(bytes: &[u8]) -> Short {
        let mut short = Short::new();
        short.put(bytes);
        short
    }

    fn text(bytes: &[u8]) -> KeyValue {
        KeyValue::Text(short(bytes))
    }

    /// All that a key gives to be hashed.
    #[derive(Default)]
    struct Heard(Vec<u8>);

    impl Hasher for Heard {
        fn write(&mut self, bytes: &[u8]) {
            self.0.extend_from_slice(bytes);
        }

        fn finish(&self) -> u64 {
            0
        }
    }

    fn heard(key: &KeyValue) -> Vec<u8> {
        let mut heard = Heard::default();
        key.hash(&mut heard);
        heard.0
    }

    proptest! {
        #[test]
        fn no_text_is_an_address(bits in any::<u32>(), bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            let address = KeyValue::V4(Ipv4Addr::from_bits(bits));
            prop_assert_ne!(heard(&address), heard(&text(&bytes)));
        }

        #[test]
        fn addresses_are_told_apart_by_every_bit(bits in any::<u32>(), bit in 0..32) {
            let [one, other] = [bits, bits ^ 1_u32 << bit].map(|bits| KeyValue::V4(Ipv4Addr::from_bits(bits)));
            prop_assert_ne!(heard(&one), heard(&other));
        }

        #[test]
        fn a_text_that_is_an_address_reads_the_same_when_it_is_a_number(
            one in "[0-9.]{7,15}", bits in any::<u32>(), other in "[0-9a-z:./ ]{0,20}",
        ) {
            let whole = AddressBits::default().text(Ipv4Addr::from_bits(bits).into());
            for written in [one, whole.clone(), other, format!("0{whole}"), format!("{whole} ")] {
                let key = KeyValue::of_text(short(written.as_bytes()), true);
                prop_assert_eq!(&*key.text(), written.as_bytes());
                prop_assert_eq!(matches!(key, KeyValue::V4(_)), written.parse::<Ipv4Addr>().is_ok());
            }
            prop_assert!(matches!(KeyValue::of_text(short(whole.as_bytes()), false), KeyValue::Text(_)));
        }
    }

    /// All bits of this one are as a length of nothing has them.
    #[test]
    fn nobody_s_address_is_the_key_of_those_who_have_none() {
        let nowhere = KeyValue::V4(Ipv4Addr::UNSPECIFIED);
        assert_ne!(heard(&nowhere), heard(&KeyValue::SHARED));
    }

    #[test]
    fn a_text_is_the_key_that_these_bytes_are() {
        let limiter = Limiter::with_clock("1/h".parse().unwrap(), ManualClock::new());
        assert!(limiter.check(&text(b"alice")).is_allow());
        assert!(limiter.check(&b"alice"[..]).is_deny());
        assert!(limiter.check(&KeyValue::SHARED).is_allow());
        assert!(limiter.check(&b""[..]).is_deny());
    }
}
