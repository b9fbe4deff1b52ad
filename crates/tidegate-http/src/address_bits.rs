//! The part of a client address that makes a key.

use crate::ByteWriter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How many leading bits of an address make a key: by default all 32 of IPv4 and the first 64 of IPv6.
///
/// A provider usually gives a customer a whole /64 of IPv6, so a client can choose the other 64 bits freely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressBits {
    v4: u8,
    v6: u8,
}

impl Default for AddressBits {
    fn default() -> Self {
        Self { v4: Self::V4, v6: Self::V6 }
    }
}

impl AddressBits {
    /// Default number of bits of an IPv4 address.
    pub const V4: u8 = 32;
    /// Default number of bits of an IPv6 address.
    pub const V6: u8 = 64;

    /// Uses `v4` bits of IPv4 addresses and `v6` bits of IPv6 addresses. Larger numbers than the address has mean all bits.
    pub const fn new(v4: u8, v6: u8) -> Self {
        let v4 = if v4 > 32 { 32 } else { v4 };
        let v6 = if v6 > 128 { 128 } else { v6 };
        Self { v4, v6 }
    }

    /// Returns the address as text, or the network that it belongs to.
    pub fn text(self, ip: IpAddr) -> String {
        let mut text = Vec::new();
        self.put(ip, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Appends the address as text, or the network that it belongs to. An IPv4-mapped IPv6 address counts as IPv4.
    #[inline]
    pub fn put(self, ip: IpAddr, out: &mut impl ByteWriter) {
        match ip.to_canonical() {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.v4)).unwrap_or(0);
                put_v4(Ipv4Addr::from_bits(ip.to_bits() & mask), out);
                put_prefix_length(self.v4, 32, out);
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.v6)).unwrap_or(0);
                out.put(Ipv6Addr::from_bits(ip.to_bits() & mask).to_string().as_bytes());
                put_prefix_length(self.v6, 128, out);
            }
        }
    }
}

fn put_v4(ip: Ipv4Addr, out: &mut impl ByteWriter) {
    let (mut text, mut end) = ([0; "255.255.255.255".len()], 0);
    for (index, octet) in ip.octets().into_iter().enumerate() {
        if index > 0 {
            text[end] = b'.';
            end += 1;
        }
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(octet).as_bytes();
        text[end..end + digits.len()].copy_from_slice(digits);
        end += digits.len();
    }
    out.put(&text[..end]);
}

fn put_prefix_length(bits: u8, all: u8, out: &mut impl ByteWriter) {
    if bits < all {
        out.put(b"/");
        out.put_number(bits.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipnet::{Ipv4Net, Ipv6Net};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_text_of_an_address_is_the_text_of_its_network(
            low in any::<u32>(), bits in any::<u128>(), v4 in 0_u8..=32, v6 in 0_u8..=128,
        ) {
            let of = |ip: IpAddr| AddressBits::new(v4, v6).text(ip);
            let ipv4 = Ipv4Addr::from_bits(low);
            let ipv6 = Ipv6Addr::from_bits(bits | 1 << 127);
            let (net4, net6) = (Ipv4Net::new(ipv4, v4).unwrap(), Ipv6Net::new(ipv6, v6).unwrap());
            let (net4, net6) = (net4.trunc().to_string(), net6.trunc().to_string());
            let without_suffix = |net: &str, suffix: &str| net.trim_end_matches(suffix).to_owned();
            prop_assert_eq!(of(IpAddr::V4(ipv4)), without_suffix(&net4, "/32"));
            prop_assert_eq!(of(IpAddr::V6(ipv4.to_ipv6_mapped())), without_suffix(&net4, "/32"));
            prop_assert_eq!(of(IpAddr::V6(ipv6)), without_suffix(&net6, "/128"));
        }
    }
}
