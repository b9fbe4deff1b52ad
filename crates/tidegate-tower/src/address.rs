//! Who asks, when proxies stand between.
//!
//! Always   Only a trusted peer is believed, and only about who came to it: the chain is walked from the
//!          right, and the first address that is not a trusted proxy's is who asks. Whatever stands further
//!          left was written by that one, and proves nothing.
//!          What cannot be read ends the walk at the last that could: there is always an address.

use crate::short::{Out, Short};
use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The headers that proxies add, each as often as it came, in the order in which they came.
///
/// ```
/// use tidegate_tower::Forwarding;
///
/// let headers = Forwarding { x_forwarded_for: &[b"192.0.2.7, 10.0.0.9"], ..Forwarding::default() };
/// assert!(headers.forwarded.is_empty());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Forwarding<'a> {
    /// `X-Forwarded-For`. If it is there, `Forwarded` is not looked at: one of the two may be what a client
    /// sent and the proxy left alone, and most proxies write this one.
    pub x_forwarded_for: &'a [&'a [u8]],
    /// `Forwarded` (RFC 7239).
    pub forwarded: &'a [&'a [u8]],
}

/// Which header is believed of trusted proxies: what yours write. The other one may be what a client sent and they left
/// alone.
///
/// ```
/// use tidegate_tower::{Forwarding, ProxyHeader, client_ip};
///
/// // The proxy has added `Forwarded`, and let through what the client has made up.
/// let headers = Forwarding { x_forwarded_for: &[b"1.1.1.1"], forwarded: &[b"for=192.0.2.7"] };
/// let (proxy, trusted) = ("10.0.0.1".parse()?, ["10.0.0.0/8".parse()?]);
/// let by = |header: ProxyHeader| client_ip(proxy, header.of(headers), &trusted).to_string();
/// assert_eq!(by(ProxyHeader::Forwarded), "192.0.2.7");
/// assert_eq!(by(ProxyHeader::Either), "1.1.1.1", "most proxies write that one");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyHeader {
    /// `X-Forwarded-For`, and `Forwarded` where that one is not there. For proxies that write the former, or take it away.
    #[default]
    Either,
    /// `X-Forwarded-For` only.
    XForwardedFor,
    /// `Forwarded` (RFC 7239) only.
    Forwarded,
}

impl ProxyHeader {
    /// What is believed of these headers.
    ///
    /// ```
    /// use tidegate_tower::{Forwarding, ProxyHeader};
    ///
    /// let headers = Forwarding { x_forwarded_for: &[b"1.1.1.1"], forwarded: &[b"for=192.0.2.7"] };
    /// assert!(ProxyHeader::XForwardedFor.of(headers).forwarded.is_empty());
    /// ```
    pub const fn of(self, headers: Forwarding<'_>) -> Forwarding<'_> {
        let Forwarding { x_forwarded_for, forwarded } = headers;
        match self {
            Self::Either => headers,
            Self::XForwardedFor => Forwarding { x_forwarded_for, forwarded: &[] },
            Self::Forwarded => Forwarding { x_forwarded_for: &[], forwarded },
        }
    }
}

/// Who asks: the peer, or whom trusted proxies say that they speak for.
///
/// ```
/// use tidegate_tower::{Forwarding, client_ip};
///
/// let headers = Forwarding { x_forwarded_for: &[b"1.1.1.1, 192.0.2.7"], ..Forwarding::default() };
/// let trusted = ["10.0.0.0/8".parse()?];
/// let proxy = "10.0.0.1".parse()?;
/// assert_eq!(client_ip(proxy, headers, &trusted).to_string(), "192.0.2.7", "what 10.0.0.1 has added");
/// let stranger = "198.51.100.1".parse()?;
/// assert_eq!(client_ip(stranger, headers, &trusted), stranger, "nobody believes a stranger");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn client_ip(peer: IpAddr, headers: Forwarding<'_>, trusted_proxies: &[IpNet]) -> IpAddr {
    let is_trusted = |address: &IpAddr| is_trusted(*address, trusted_proxies);
    let peer = peer.to_canonical();
    if !is_trusted(&peer) {
        return peer;
    }
    if headers.x_forwarded_for.is_empty() {
        let mut hops: Vec<Option<IpAddr>> =
            headers.forwarded.iter().flat_map(|value| forwarded(value)).collect();
        hops.reverse();
        return walk(peer, hops.into_iter(), is_trusted);
    }
    let entries =
        headers.x_forwarded_for.iter().rev().flat_map(|value| value.rsplit(|b| *b == b','));
    let hops = entries.map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty()).map(address);
    walk(peer, hops, is_trusted)
}

/// Whether an address is one of these proxies.
///
/// ```
/// use tidegate_tower::is_trusted;
///
/// let trusted = ["10.0.0.0/8".parse()?];
/// assert!(is_trusted("10.1.2.3".parse()?, &trusted) && is_trusted("::ffff:10.1.2.3".parse()?, &trusted));
/// assert!(!is_trusted("192.0.2.7".parse()?, &trusted));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn is_trusted(address: IpAddr, trusted_proxies: &[IpNet]) -> bool {
    let address = address.to_canonical();
    trusted_proxies.iter().any(|net| is_within(net, &address))
}

/// Whether an address, which is in its shortest form, is one of these. A net may be written as IPv6 has IPv4:
/// `::ffff:10.0.0.0/104` is `10.0.0.0/8`. Who trusts all of IPv6 has said nothing of IPv4.
fn is_within(net: &IpNet, address: &IpAddr) -> bool {
    const MAPPED_BITS: u8 = 96;
    match (net, address) {
        (IpNet::V6(net), IpAddr::V4(address)) if net.prefix_len() >= MAPPED_BITS => {
            net.contains(&address.to_ipv6_mapped())
        }
        _ => net.contains(address),
    }
}

/// The same, for the headers of a request. Where nobody is trusted, nothing is looked at.
///
/// ```
/// use tidegate_tower::client_ip_of;
///
/// let mut headers = http::HeaderMap::new();
/// headers.insert("x-forwarded-for", "192.0.2.7".parse()?);
/// let (proxy, trusted) = ("10.0.0.1".parse()?, ["10.0.0.0/8".parse()?]);
/// assert_eq!(client_ip_of(proxy, &headers, &trusted).to_string(), "192.0.2.7");
/// assert_eq!(client_ip_of(proxy, &headers, &[]), proxy);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn client_ip_of(peer: IpAddr, headers: &HeaderMap, trusted_proxies: &[IpNet]) -> IpAddr {
    client_ip_by(ProxyHeader::Either, peer, headers, trusted_proxies)
}

/// The same by the header that the proxies are known to write.
///
/// ```
/// use tidegate_tower::{ProxyHeader, client_ip_by};
///
/// let mut headers = http::HeaderMap::new();
/// headers.insert("forwarded", "for=192.0.2.7".parse()?);
/// headers.insert("x-forwarded-for", "1.1.1.1".parse()?);
/// let (proxy, trusted) = ("10.0.0.1".parse()?, ["10.0.0.0/8".parse()?]);
/// let client = client_ip_by(ProxyHeader::Forwarded, proxy, &headers, &trusted);
/// assert_eq!(client.to_string(), "192.0.2.7", "what the client has made up is not looked at");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn client_ip_by(
    header: ProxyHeader,
    peer: IpAddr,
    headers: &HeaderMap,
    trusted_proxies: &[IpNet],
) -> IpAddr {
    if trusted_proxies.is_empty() {
        return peer.to_canonical();
    }
    let all = |name: &str| -> Vec<&[u8]> {
        headers.get_all(name).iter().map(HeaderValue::as_bytes).collect()
    };
    let (x_forwarded_for, forwarded) = (all("x-forwarded-for"), all("forwarded"));
    let headers = Forwarding { x_forwarded_for: &x_forwarded_for, forwarded: &forwarded };
    client_ip(peer, header.of(headers), trusted_proxies)
}

/// Bits of an address that make a key: all of IPv4 and, of IPv6, what one customer is given at least.
///
/// ```
/// use tidegate_tower::AddressBits;
///
/// let bits = AddressBits::default();
/// let text = |ip: &str| bits.text(ip.parse().unwrap());
/// assert_eq!(text("192.0.2.7"), "192.0.2.7");
/// assert_eq!(text("::ffff:192.0.2.7"), "192.0.2.7");
/// assert_eq!(text("2001:db8::1"), "2001:db8::/64");
/// assert_eq!(text("2001:db8::1"), text("2001:db8::dead:beef"));
/// ```
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
    /// All of them.
    pub const V4: u8 = 32;
    /// Whoever has one address of such a network has all of them.
    pub const V6: u8 = 64;

    /// So many bits of each kind; more than there are is all of them.
    ///
    /// ```
    /// use tidegate_tower::AddressBits;
    ///
    /// let text = AddressBits::new(24, 56).text("192.0.2.7".parse().unwrap());
    /// assert_eq!(text, "192.0.2.0/24");
    /// ```
    pub const fn new(v4: u8, v6: u8) -> Self {
        let v4 = if v4 > 32 { 32 } else { v4 };
        let v6 = if v6 > 128 { 128 } else { v6 };
        Self { v4, v6 }
    }

    /// The address, or the network that it is in, as text.
    ///
    /// ```
    /// use tidegate_tower::AddressBits;
    ///
    /// let whole = AddressBits::new(32, 128);
    /// assert_eq!(whole.text("2001:db8::1".parse().unwrap()), "2001:db8::1");
    /// ```
    pub fn text(self, ip: IpAddr) -> String {
        let mut short = Short::new();
        self.put(ip, &mut short);
        String::from_utf8_lossy(short.as_bytes()).into_owned()
    }

    /// Whether an address of IPv4 is a key as it is.
    #[inline]
    pub(crate) const fn has_all_of_v4(self) -> bool {
        self.v4 == Self::V4
    }

    /// Appends that text.
    pub(crate) fn put(self, ip: IpAddr, out: &mut Short) {
        match ip.to_canonical() {
            IpAddr::V4(ip) => self.put_v4(ip, out),
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.v6)).unwrap_or(0);
                let network = Ipv6Addr::from_bits(ip.to_bits() & mask);
                write!(out, "{network}").expect("there is always room");
                Self::put_bits(self.v6, 128, out);
            }
        }
    }

    #[inline]
    pub(crate) fn put_v4(self, ip: Ipv4Addr, out: &mut Short) {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.v4)).unwrap_or(0);
        put_v4(Ipv4Addr::from_bits(ip.to_bits() & mask), out);
        Self::put_bits(self.v4, 32, out);
    }

    #[inline]
    fn put_bits(bits: u8, all: u8, out: &mut Short) {
        if bits < all {
            out.put(b"/");
            out.put_number(bits.into());
        }
    }
}

/// What `Display` writes, in a tenth of the time: under a limit that others may ask, too, it is written for every request.
#[inline]
fn put_v4(ip: Ipv4Addr, out: &mut Short) {
    let [a, b, c, d] = ip.octets();
    let ((start, start_count), (end, end_count)) = (two_octets(a, b), two_octets(c, d));
    // In one number: a processor has to wait before it can read at once what was written in parts.
    let text = u128::from(start) | u128::from(end) << (start_count * 8);
    out.put_word_pair(text, start_count + end_count - 1);
}

/// The digits of both, each with a dot after it; and how many characters these are.
#[inline]
fn two_octets(one: u8, other: u8) -> (u64, usize) {
    let [(one, one_count), (other, other_count)] =
        [one, other].map(|byte| OCTETS[usize::from(byte)]);
    let [one, other] = [one, other].map(|digits| u64::from(u32::from_le_bytes(digits)));
    (one | other << (one_count * 8), usize::from(one_count + other_count))
}

/// The digits of each byte and a dot, then zeros; and how many characters these are.
static OCTETS: [([u8; 4], u8); 256] = {
    let mut octets = [([0; 4], 0); 256];
    let mut byte: u8 = 0;
    loop {
        let (hundreds, tens, ones) = (b'0' + byte / 100, b'0' + byte / 10 % 10, b'0' + byte % 10);
        octets[byte as usize] = match byte {
            ..10 => ([ones, b'.', 0, 0], 2),
            10..100 => ([tens, ones, b'.', 0], 3),
            100.. => ([hundreds, tens, ones, b'.'], 4),
        };
        if byte == u8::MAX {
            break octets;
        }
        byte += 1;
    }
};

/// From the nearest hop to the farthest; a hop that cannot be read is `None`.
fn walk(
    peer: IpAddr,
    hops: impl Iterator<Item = Option<IpAddr>>,
    is_trusted: impl Fn(&IpAddr) -> bool,
) -> IpAddr {
    let mut last = peer;
    for hop in hops {
        match hop {
            Some(hop) => last = hop,
            None => return last,
        }
        if !is_trusted(&last) {
            return last;
        }
    }
    last
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`, `fe80::1%eth0`.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let address = if let Some(bracketed) = text.strip_prefix('[') {
        let (inside, port) = bracketed.split_once(']')?;
        if !port.is_empty() && !is_port(port.strip_prefix(':')?) {
            return None;
        }
        v6(inside).map(IpAddr::V6)
    } else if text.bytes().filter(|byte| *byte == b':').count() == 1 {
        let (host, port) = text.split_once(':')?;
        let host: Option<Ipv4Addr> = host.parse().ok();
        host.filter(|_| is_port(port)).map(IpAddr::V4)
    } else {
        text.parse().ok().map(IpAddr::V4).or_else(|| v6(text).map(IpAddr::V6))
    };
    address.map(|address| address.to_canonical())
}

/// Without its zone, which means something to the host that wrote it only.
fn v6(text: &str) -> Option<Ipv6Addr> {
    let address = match text.split_once('%') {
        Some((_, "")) => return None,
        Some((address, _)) => address,
        None => text,
    };
    address.parse().ok()
}

/// A port, or the name that stands for one (RFC 7239, 6).
fn is_port(text: &str) -> bool {
    let is_hidden = text.len() > 1 && text.starts_with('_');
    is_hidden || (!text.is_empty() && text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit()))
}

/// The addresses of a `Forwarded` header, from left to right.
fn forwarded(value: &[u8]) -> Vec<Option<IpAddr>> {
    let Some(elements) = split_outside_quotes(value, b',') else { return vec![None] };
    let is_something = |element: &&[u8]| !element.trim_ascii().is_empty();
    elements.into_iter().filter(is_something).map(forwarded_for).collect()
}

/// The one `for=` of an element.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let pairs = split_outside_quotes(element, b';')?;
    let mut nodes = pairs.into_iter().filter_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
        name.eq_ignore_ascii_case(b"for").then_some(value)
    });
    let (node, another) = (nodes.next()?, nodes.next());
    let bare = node.strip_prefix(b"\"").and_then(|node| node.strip_suffix(b"\""));
    address(bare.unwrap_or(node)).filter(|_| another.is_none())
}

/// `None` if a quote is not closed.
fn split_outside_quotes(value: &[u8], separator: u8) -> Option<Vec<&[u8]>> {
    let (mut pieces, mut start, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    for (place, byte) in value.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            byte if *byte == separator && !is_quoted => {
                pieces.push(&value[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    pieces.push(&value[start..]);
    (!is_quoted).then_some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipnet::{Ipv4Net, Ipv6Net};
    use proptest::prelude::*;

    /// Who asks, by `X-Forwarded-For`, when 10.0.0.0/8 and `fd00::/8` are trusted.
    fn by(peer: &str, headers: &[&str]) -> String {
        let values: Vec<&[u8]> = headers.iter().map(|value| value.as_bytes()).collect();
        client(peer, Forwarding { x_forwarded_for: &values, forwarded: &[] })
    }

    fn by_forwarded(peer: &str, header: &str) -> String {
        client(peer, Forwarding { x_forwarded_for: &[], forwarded: &[header.as_bytes()] })
    }

    fn client(peer: &str, headers: Forwarding<'_>) -> String {
        let trusted = ["10.0.0.0/8", "fd00::/8"].map(|net| net.parse().unwrap());
        client_ip(peer.parse().unwrap(), headers, &trusted).to_string()
    }

    #[test]
    fn a_stranger_is_not_believed() {
        assert_eq!(by("192.0.2.9", &["198.51.100.1"]), "192.0.2.9");
        assert_eq!(by_forwarded("192.0.2.9", "for=198.51.100.1"), "192.0.2.9");
        assert_eq!(
            client_ip(
                "10.0.0.1".parse().unwrap(),
                Forwarding { x_forwarded_for: &[b"198.51.100.1"], forwarded: &[] },
                &[]
            )
            .to_string(),
            "10.0.0.1",
            "nobody is trusted unless told"
        );
    }

    #[test]
    fn a_net_is_the_same_however_ipv4_is_written_in_it() {
        let headers =
            Forwarding { x_forwarded_for: &[b"192.0.2.7, 10.0.0.9"], ..Forwarding::default() };
        for net in ["10.0.0.0/8", "::ffff:10.0.0.0/104", "::ffff:0:0/96"] {
            for peer in ["10.0.0.1", "::ffff:10.0.0.1"] {
                let client = client_ip(peer.parse().unwrap(), headers, &[net.parse().unwrap()]);
                assert_eq!(client.to_string(), "192.0.2.7", "{net} and {peer}");
            }
            let stranger: IpAddr = "2001:db8::1".parse().unwrap();
            assert_eq!(client_ip(stranger, headers, &[net.parse().unwrap()]), stranger);
        }
        let stranger: IpAddr = "11.0.0.1".parse().unwrap();
        for net in ["::ffff:10.0.0.0/104", "::/0"] {
            assert_eq!(client_ip(stranger, headers, &[net.parse().unwrap()]), stranger, "{net}");
        }
    }

    #[test]
    fn the_walk_goes_from_the_right_to_the_first_that_is_not_trusted() {
        assert_eq!(by("10.0.0.1", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(by("10.0.0.1", &["1.1.1.1, 198.51.100.1, 10.9.9.9"]), "198.51.100.1");
        assert_eq!(by("10.0.0.1", &["1.1.1.1", "198.51.100.1, 10.9.9.9"]), "198.51.100.1");
        assert_eq!(by("10.0.0.1", &["10.0.0.3, 10.0.0.2"]), "10.0.0.3", "all are trusted");
        assert_eq!(by("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(by("fd00::1", &["2001:db8::7"]), "2001:db8::7");
    }

    #[test]
    fn the_header_that_is_not_believed_is_as_if_it_was_not_there() {
        let both = Forwarding { x_forwarded_for: &[b"1.1.1.1"], forwarded: &[b"for=2.2.2.2"] };
        let by = |header: ProxyHeader, headers| client("10.0.0.1", header.of(headers));
        assert_eq!(by(ProxyHeader::Either, both), "1.1.1.1");
        assert_eq!(by(ProxyHeader::XForwardedFor, both), "1.1.1.1");
        assert_eq!(by(ProxyHeader::Forwarded, both), "2.2.2.2");
        let without = |header: ProxyHeader| Forwarding {
            x_forwarded_for: if header == ProxyHeader::Forwarded {
                both.x_forwarded_for
            } else {
                &[]
            },
            forwarded: if header == ProxyHeader::XForwardedFor { both.forwarded } else { &[] },
        };
        for header in [ProxyHeader::XForwardedFor, ProxyHeader::Forwarded] {
            assert_eq!(by(header, without(header)), "10.0.0.1", "{header:?}: the proxy, not a lie");
        }
    }

    #[test]
    fn garbage_ends_the_walk_at_the_last_good() {
        for garbage in
            ["unknown", "_hidden", "1.2.3", "01.2.3.4", "1.2.3.4:http", "::1]", "[::1", "%"]
        {
            let header = format!("1.1.1.1, {garbage}, 10.2.2.2");
            assert_eq!(by("10.0.0.1", &[&header]), "10.2.2.2", "{garbage:?} was read");
            assert_eq!(by("10.0.0.1", &[garbage]), "10.0.0.1");
        }
        assert_eq!(by("10.0.0.1", &["198.51.100.1, , "]), "198.51.100.1", "nothing is no garbage");
    }

    #[test]
    fn every_spelling_of_an_address_is_that_address() {
        for spelling in
            ["1.2.3.4", "::ffff:1.2.3.4", "::ffff:102:304", "1.2.3.4:80", "[::ffff:1.2.3.4]:1"]
        {
            assert_eq!(by("10.0.0.1", &[spelling]), "1.2.3.4");
        }
        for spelling in ["2001:db8::1", "[2001:DB8:0::1]", "[2001:db8::1]:443", "2001:db8::1%eth0"]
        {
            assert_eq!(by("10.0.0.1", &[spelling]), "2001:db8::1");
        }
        assert_eq!(by("10.0.0.1", &["2001:db8::1.2.3.4"]), "2001:db8::102:304");
        assert_eq!(by("::ffff:10.0.0.1", &["1.2.3.4"]), "1.2.3.4", "the peer, too");
    }

    #[test]
    fn a_chain_of_a_thousand_hops_ends_where_trust_does() {
        let chain = "1.1.1.1, ".repeat(1_000) + "198.51.100.1";
        assert_eq!(by("10.0.0.1", &[&chain]), "198.51.100.1");
        let chain = "198.51.100.1, ".to_owned() + &"10.1.1.1, ".repeat(1_000);
        assert_eq!(by("10.0.0.1", &[&chain]), "198.51.100.1");
    }

    #[test]
    fn forwarded_is_read_as_its_rfc_says() {
        let header = "for=192.0.2.43, For=\"[2001:db8:cafe::17]:4711\";proto=http;by=10.0.0.1";
        assert_eq!(by_forwarded("10.0.0.1", header), "2001:db8:cafe::17");
        assert_eq!(by_forwarded("10.0.0.1", "for=\"192.0.2.1:_p\""), "192.0.2.1");
        assert_eq!(by_forwarded("10.0.0.1", "for=1.1.1.1, for=unknown"), "10.0.0.1");
        assert_eq!(by_forwarded("10.0.0.1", "for=1.1.1.1, by=10.0.0.2"), "10.0.0.1");
        assert_eq!(by_forwarded("10.0.0.1", "for=1.1.1.1;for=2.2.2.2"), "10.0.0.1");
        assert_eq!(by_forwarded("10.0.0.1", "for=\"1.1.1.1, for=2.2.2.2"), "10.0.0.1");
        assert_eq!(by_forwarded("10.0.0.1", "proto=\"a,b;for=3.3.3.3\";for=1.1.1.1"), "1.1.1.1");
        let both = Forwarding { x_forwarded_for: &[b"1.1.1.1"], forwarded: &[b"for=2.2.2.2"] };
        assert_eq!(client("10.0.0.1", both), "1.1.1.1");
    }

    proptest! {
        #[test]
        fn the_text_is_the_one_of_the_network(
            low in any::<u32>(), bits in any::<u128>(), v4 in 0_u8..=32, v6 in 0_u8..=128,
        ) {
            let of = |ip: IpAddr| AddressBits::new(v4, v6).text(ip);
            let ipv4 = Ipv4Addr::from_bits(low);
            let ipv6 = Ipv6Addr::from_bits(bits | 1 << 127);
            let (net4, net6) = (Ipv4Net::new(ipv4, v4).unwrap(), Ipv6Net::new(ipv6, v6).unwrap());
            let (net4, net6) = (net4.trunc().to_string(), net6.trunc().to_string());
            let bare = |net: &str, all: &str| net.trim_end_matches(all).to_owned();
            prop_assert_eq!(of(IpAddr::V4(ipv4)), bare(&net4, "/32"));
            prop_assert_eq!(of(IpAddr::V6(ipv4.to_ipv6_mapped())), bare(&net4, "/32"));
            prop_assert_eq!(of(IpAddr::V6(ipv6)), bare(&net6, "/128"));
        }

        #[test]
        fn whatever_a_client_writes_a_proxy_that_adds_it_names_it(
            lies in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let own: &[u8] = b"198.51.100.1";
            let forged = [&lies[..], b", ", own].concat();
            let trusted = ["10.0.0.0/8".parse().unwrap()];
            let peer = "10.0.0.1".parse().unwrap();
            for values in [vec![&forged[..]], vec![&lies[..], own]] {
                let headers = Forwarding { x_forwarded_for: &values, forwarded: &[] };
                prop_assert_eq!(client_ip(peer, headers, &trusted).to_string(), "198.51.100.1");
            }
            drop(forwarded(&lies));
        }
    }
}
