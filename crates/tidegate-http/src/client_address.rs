//! The client's address when proxies stand between the client and the server.
//!
//! Invariant Only a trusted proxy is believed, and only about the address that connected to it: the chain of proxies is
//!           walked from the right, and the first address that is not a trusted proxy is the client. Everything further
//!           left was written by that client and proves nothing.
//!           An entry that cannot be parsed ends the walk at the last good address, so there is always a result.

use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The values of the headers in which proxies report client addresses, in the order in which they arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct ForwardingHeaders<'a> {
    /// Values of `X-Forwarded-For`.
    pub x_forwarded_for: &'a [&'a [u8]],
    /// Values of `Forwarded` (RFC 7239). Ignored if there is an `X-Forwarded-For`: one of the two may have been sent by the
    /// client and passed on unchanged, and most proxies write `X-Forwarded-For`.
    pub forwarded: &'a [&'a [u8]],
}

/// Which header of trusted proxies is believed. Choose the one that your proxies write: they may pass on the other one as
/// the client sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyHeader {
    /// `X-Forwarded-For`, and `Forwarded` if there is none. For proxies that write `X-Forwarded-For` or remove it.
    #[default]
    Either,
    /// `X-Forwarded-For` only.
    XForwardedFor,
    /// `Forwarded` (RFC 7239) only.
    Forwarded,
}

impl ProxyHeader {
    /// Returns `headers` without the header that is not believed.
    pub const fn select(self, headers: ForwardingHeaders<'_>) -> ForwardingHeaders<'_> {
        let ForwardingHeaders { x_forwarded_for, forwarded } = headers;
        match self {
            Self::Either => headers,
            Self::XForwardedFor => ForwardingHeaders { x_forwarded_for, forwarded: &[] },
            Self::Forwarded => ForwardingHeaders { x_forwarded_for: &[], forwarded },
        }
    }
}

/// Returns the client's address: the peer's, or the one that trusted proxies report.
///
/// ```
/// use tidegate_http::{ForwardingHeaders, client_ip};
///
/// let headers =
///     ForwardingHeaders { x_forwarded_for: &[b"1.1.1.1, 192.0.2.7"], ..ForwardingHeaders::default() };
/// let trusted = ["10.0.0.0/8".parse()?];
/// let proxy = "10.0.0.1".parse()?;
/// assert_eq!(client_ip(proxy, headers, &trusted).to_string(), "192.0.2.7", "added by 10.0.0.1");
/// let untrusted = "198.51.100.1".parse()?;
/// assert_eq!(client_ip(untrusted, headers, &trusted), untrusted, "its headers are ignored");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn client_ip(
    peer: IpAddr,
    headers: ForwardingHeaders<'_>,
    trusted_proxies: &[IpNet],
) -> IpAddr {
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

/// Returns the client's address as [`client_ip`] does, from the headers of a request. Reads no header if no proxy is trusted.
pub fn client_ip_from_headers(
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
    let headers = ForwardingHeaders { x_forwarded_for: &x_forwarded_for, forwarded: &forwarded };
    client_ip(peer, header.select(headers), trusted_proxies)
}

/// Returns whether an address belongs to one of these networks.
///
/// A network may be written as IPv4 or as IPv4-mapped IPv6: `::ffff:10.0.0.0/104` is `10.0.0.0/8`. Networks of IPv6 that
/// contain all mapped addresses, such as `::/0`, contain no IPv4 address.
pub fn is_trusted(address: IpAddr, trusted_proxies: &[IpNet]) -> bool {
    let address = address.to_canonical();
    trusted_proxies.iter().any(|net| is_within(net, &address))
}

fn is_within(net: &IpNet, canonical: &IpAddr) -> bool {
    const MAPPED_BITS: u8 = 96;
    match (net, canonical) {
        (IpNet::V6(net), IpAddr::V4(address)) if net.prefix_len() >= MAPPED_BITS => {
            net.contains(&address.to_ipv6_mapped())
        }
        _ => net.contains(canonical),
    }
}

/// Walks `hops` from the nearest to the farthest; a hop that cannot be parsed is `None`.
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

/// Parses `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`, `fe80::1%eth0`.
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

/// Parses an IPv6 address without its zone, which has a meaning only on the host that wrote it.
fn v6(text: &str) -> Option<Ipv6Addr> {
    let address = match text.split_once('%') {
        Some((_, "")) => return None,
        Some((address, _)) => address,
        None => text,
    };
    address.parse().ok()
}

/// Returns whether this is a port number, or an obfuscated port (RFC 7239, 6.3).
fn is_port(text: &str) -> bool {
    let is_hidden = text.len() > 1 && text.starts_with('_');
    is_hidden || (!text.is_empty() && text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns the addresses of a `Forwarded` header, from left to right.
fn forwarded(value: &[u8]) -> Vec<Option<IpAddr>> {
    let Some(elements) = split_outside_quotes(value, b',') else { return vec![None] };
    let is_not_blank = |element: &&[u8]| !element.trim_ascii().is_empty();
    elements.into_iter().filter(is_not_blank).map(forwarded_for).collect()
}

/// Returns the address of an element that has exactly one `for=`.
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

/// Splits at separators outside quoted strings. Returns `None` if a quote is not closed.
fn split_outside_quotes(value: &[u8], separator: u8) -> Option<Vec<&[u8]>> {
    let (mut pieces, mut start, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    for (index, byte) in value.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            byte if *byte == separator && !is_quoted => {
                pieces.push(&value[start..index]);
                start = index + 1;
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
    use proptest::prelude::*;

    /// Returns the client by `X-Forwarded-For`, when 10.0.0.0/8 and `fd00::/8` are trusted.
    fn by(peer: &str, headers: &[&str]) -> String {
        let values: Vec<&[u8]> = headers.iter().map(|value| value.as_bytes()).collect();
        client(peer, ForwardingHeaders { x_forwarded_for: &values, forwarded: &[] })
    }

    fn by_forwarded(peer: &str, header: &str) -> String {
        client(peer, ForwardingHeaders { x_forwarded_for: &[], forwarded: &[header.as_bytes()] })
    }

    fn client(peer: &str, headers: ForwardingHeaders<'_>) -> String {
        let trusted = ["10.0.0.0/8", "fd00::/8"].map(|net| net.parse().unwrap());
        client_ip(peer.parse().unwrap(), headers, &trusted).to_string()
    }

    #[test]
    fn an_untrusted_peer_is_the_client_whatever_its_headers_say() {
        assert_eq!(by("192.0.2.9", &["198.51.100.1"]), "192.0.2.9");
        assert_eq!(by_forwarded("192.0.2.9", "for=198.51.100.1"), "192.0.2.9");
        assert_eq!(
            client_ip(
                "10.0.0.1".parse().unwrap(),
                ForwardingHeaders { x_forwarded_for: &[b"198.51.100.1"], forwarded: &[] },
                &[]
            )
            .to_string(),
            "10.0.0.1",
            "no proxy is trusted by default"
        );
    }

    #[test]
    fn a_network_of_ipv4_may_be_written_as_mapped_ipv6() {
        let headers = ForwardingHeaders {
            x_forwarded_for: &[b"192.0.2.7, 10.0.0.9"],
            ..ForwardingHeaders::default()
        };
        for net in ["10.0.0.0/8", "::ffff:10.0.0.0/104", "::ffff:0:0/96"] {
            for peer in ["10.0.0.1", "::ffff:10.0.0.1"] {
                let client = client_ip(peer.parse().unwrap(), headers, &[net.parse().unwrap()]);
                assert_eq!(client.to_string(), "192.0.2.7", "{net} and {peer}");
            }
            let untrusted: IpAddr = "2001:db8::1".parse().unwrap();
            assert_eq!(client_ip(untrusted, headers, &[net.parse().unwrap()]), untrusted);
        }
        let untrusted: IpAddr = "11.0.0.1".parse().unwrap();
        for net in ["::ffff:10.0.0.0/104", "::/0"] {
            assert_eq!(client_ip(untrusted, headers, &[net.parse().unwrap()]), untrusted, "{net}");
        }
    }

    #[test]
    fn the_walk_goes_from_the_right_to_the_first_untrusted_address() {
        assert_eq!(by("10.0.0.1", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(by("10.0.0.1", &["1.1.1.1, 198.51.100.1, 10.9.9.9"]), "198.51.100.1");
        assert_eq!(by("10.0.0.1", &["1.1.1.1", "198.51.100.1, 10.9.9.9"]), "198.51.100.1");
        assert_eq!(
            by("10.0.0.1", &["10.0.0.3, 10.0.0.2"]),
            "10.0.0.3",
            "all addresses are trusted"
        );
        assert_eq!(by("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(by("fd00::1", &["2001:db8::7"]), "2001:db8::7");
    }

    #[test]
    fn a_header_that_is_not_selected_is_ignored() {
        let both =
            ForwardingHeaders { x_forwarded_for: &[b"1.1.1.1"], forwarded: &[b"for=2.2.2.2"] };
        let by = |header: ProxyHeader, headers| client("10.0.0.1", header.select(headers));
        assert_eq!(by(ProxyHeader::Either, both), "1.1.1.1");
        assert_eq!(by(ProxyHeader::XForwardedFor, both), "1.1.1.1");
        assert_eq!(by(ProxyHeader::Forwarded, both), "2.2.2.2");
        let without = |header: ProxyHeader| ForwardingHeaders {
            x_forwarded_for: if header == ProxyHeader::Forwarded {
                both.x_forwarded_for
            } else {
                &[]
            },
            forwarded: if header == ProxyHeader::XForwardedFor { both.forwarded } else { &[] },
        };
        for header in [ProxyHeader::XForwardedFor, ProxyHeader::Forwarded] {
            assert_eq!(
                by(header, without(header)),
                "10.0.0.1",
                "{header:?}: the proxy, not the forged address"
            );
        }
    }

    #[test]
    fn an_unparsable_entry_ends_the_walk_at_the_last_good_address() {
        for garbage in
            ["unknown", "_hidden", "1.2.3", "01.2.3.4", "1.2.3.4:http", "::1]", "[::1", "%"]
        {
            let header = format!("1.1.1.1, {garbage}, 10.2.2.2");
            assert_eq!(by("10.0.0.1", &[&header]), "10.2.2.2", "{garbage:?} was parsed");
            assert_eq!(by("10.0.0.1", &[garbage]), "10.0.0.1");
        }
        assert_eq!(
            by("10.0.0.1", &["198.51.100.1, , "]),
            "198.51.100.1",
            "empty entries are skipped"
        );
    }

    #[test]
    fn every_spelling_of_an_address_is_parsed() {
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
        assert_eq!(by("::ffff:10.0.0.1", &["1.2.3.4"]), "1.2.3.4", "mapped peer");
    }

    #[test]
    fn a_chain_of_a_thousand_hops_ends_at_the_first_untrusted_address() {
        let chain = "1.1.1.1, ".repeat(1_000) + "198.51.100.1";
        assert_eq!(by("10.0.0.1", &[&chain]), "198.51.100.1");
        let chain = "198.51.100.1, ".to_owned() + &"10.1.1.1, ".repeat(1_000);
        assert_eq!(by("10.0.0.1", &[&chain]), "198.51.100.1");
    }

    #[test]
    fn forwarded_is_parsed_as_rfc_7239_says() {
        let header = "for=192.0.2.43, For=\"[2001:db8:cafe::17]:4711\";proto=http;by=10.0.0.1";
        assert_eq!(by_forwarded("10.0.0.1", header), "2001:db8:cafe::17");
        assert_eq!(by_forwarded("10.0.0.1", "for=\"192.0.2.1:_p\""), "192.0.2.1");
        assert_eq!(by_forwarded("10.0.0.1", "for=1.1.1.1, for=unknown"), "10.0.0.1");
        assert_eq!(by_forwarded("10.0.0.1", "for=1.1.1.1, by=10.0.0.2"), "10.0.0.1");
        assert_eq!(by_forwarded("10.0.0.1", "for=1.1.1.1;for=2.2.2.2"), "10.0.0.1");
        assert_eq!(by_forwarded("10.0.0.1", "for=\"1.1.1.1, for=2.2.2.2"), "10.0.0.1");
        assert_eq!(by_forwarded("10.0.0.1", "proto=\"a,b;for=3.3.3.3\";for=1.1.1.1"), "1.1.1.1");
        let both =
            ForwardingHeaders { x_forwarded_for: &[b"1.1.1.1"], forwarded: &[b"for=2.2.2.2"] };
        assert_eq!(client("10.0.0.1", both), "1.1.1.1");
    }

    proptest! {
        #[test]
        fn forged_headers_do_not_hide_a_client_behind_a_trusted_proxy(
            forged_prefix in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let own: &[u8] = b"198.51.100.1";
            let forged = [&forged_prefix[..], b", ", own].concat();
            let trusted = ["10.0.0.0/8".parse().unwrap()];
            let peer = "10.0.0.1".parse().unwrap();
            for values in [vec![&forged[..]], vec![&forged_prefix[..], own]] {
                let headers = ForwardingHeaders { x_forwarded_for: &values, forwarded: &[] };
                prop_assert_eq!(client_ip(peer, headers, &trusted).to_string(), "198.51.100.1");
            }
            drop(forwarded(&forged_prefix));
        }
    }
}
