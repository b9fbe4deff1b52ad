//! Who asks, when proxies stand between.
//!
//! Always   Only a trusted peer is believed, and only about who came to it: the chain is walked from the
//!          right, and the first address that is not a trusted proxy's is who asks. Whatever stands further
//!          left was written by that one, and proves nothing.
//!          What cannot be read ends the walk at the last that could: there is always an address.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The headers that proxies add, each as often as it came, in the order in which they came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forwarding<'a> {
    /// `X-Forwarded-For`. If it is there, `Forwarded` is not looked at: one of the two may be what a client
    /// sent and the proxy left alone, and most proxies write this one.
    pub x_forwarded_for: &'a [&'a [u8]],
    /// `Forwarded` (RFC 7239).
    pub forwarded: &'a [&'a [u8]],
}

/// Who asks: the peer, or whom trusted proxies say that they speak for.
pub fn client_ip(peer: IpAddr, headers: Forwarding<'_>, trusted_proxies: &[IpNet]) -> IpAddr {
    let is_trusted = |address: &IpAddr| trusted_proxies.iter().any(|net| net.contains(address));
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
    use proptest::prelude::*;

    /// Who asks, by `X-Forwarded-For`, when 10.0.0.0/8 and fd00::/8 are trusted.
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
    fn the_walk_goes_from_the_right_to_the_first_that_is_not_trusted() {
        assert_eq!(by("10.0.0.1", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(by("10.0.0.1", &["1.1.1.1, 198.51.100.1, 10.9.9.9"]), "198.51.100.1");
        assert_eq!(by("10.0.0.1", &["1.1.1.1", "198.51.100.1, 10.9.9.9"]), "198.51.100.1");
        assert_eq!(by("10.0.0.1", &["10.0.0.3, 10.0.0.2"]), "10.0.0.3", "all are trusted");
        assert_eq!(by("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(by("fd00::1", &["2001:db8::7"]), "2001:db8::7");
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
