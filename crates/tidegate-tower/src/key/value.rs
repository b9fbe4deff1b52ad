//! The key of one request: what a limiter is asked by.
//!
//! Always   The same client has the same key, whichever layer asks and whatever it asks. So a limit writes its addresses out or
//!          it does not, once and for all: one that nobody else can ask need not, and a number is hashed in half the time that
//!          it takes to write and hash its digits.

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

    pub(crate) fn text(&self) -> Cow<'_, [u8]> {
        match self {
            Self::V4(ip) => Cow::Owned(ip.to_string().into_bytes()),
            Self::Text(text) => Cow::Borrowed(text.as_bytes()),
        }
    }
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
    use crate::short::Out;
    use proptest::prelude::*;
    use tidegate::{Limiter, ManualClock};

    fn text(bytes: &[u8]) -> KeyValue {
        let mut short = Short::new();
        short.put(bytes);
        KeyValue::Text(short)
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
            prop_assert_ne!(heard(&address), heard(&text(&bits.to_le_bytes())));
        }

        #[test]
        fn addresses_are_told_apart_and_read_as_everybody_writes_them(one in any::<u32>(), other in any::<u32>()) {
            let [a, b] = [one, other].map(|bits| KeyValue::V4(Ipv4Addr::from_bits(bits)));
            prop_assert_eq!(one == other, heard(&a) == heard(&b));
            prop_assert_eq!(a.text().into_owned(), Ipv4Addr::from_bits(one).to_string().into_bytes());
        }
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
