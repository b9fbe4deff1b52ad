//! A port on loopback that is reserved while the value lives, whether or not a server listens there.
//!
//! Rejected Port 0: when a server is killed, the system may use its port as the local port of another connection. Then
//!          the server cannot restart, or a client that should be refused is not.
//! Always   Ports are below the range of ephemeral ports. Testbeds, also in other processes, reserve a port by binding
//!          the UDP port of the same number, which the system releases when the process is killed.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;

/// Linux uses 32 768 and above as ephemeral ports.
const NUMBERS: Range<u16> = 12_000..32_000;
const ATTEMPTS_MAX: u64 = 1_000;

pub(crate) struct Port {
    number: u16,
    _claim: UdpSocket,
}

impl Port {
    pub(crate) fn claim() -> Self {
        // Processes that start at the same time try different ports.
        let random = RandomState::new();
        let candidates = (0..ATTEMPTS_MAX).map(|attempt| random.hash_one(attempt));
        candidates.into_iter().find_map(Self::try_claim).expect("some port is free")
    }

    fn try_claim(random: u64) -> Option<Self> {
        let number = u64::from(NUMBERS.start) + random % u64::try_from(NUMBERS.len()).ok()?;
        let address = loopback(u16::try_from(number).ok()?);
        let claim = UdpSocket::bind(address).ok()?;
        // A program that is no testbed may listen there.
        TcpListener::bind(address).ok()?;
        Some(Self { number: address.port(), _claim: claim })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn address(&self) -> SocketAddr {
        loopback(self.number)
    }
}

fn loopback(number: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_port_is_not_claimed_again() {
        let port = Port::claim();
        let same = u64::from(port.number() - NUMBERS.start);
        assert!(Port::try_claim(same).is_none());
        drop(port);
        assert!(Port::try_claim(same).is_some());
    }

    #[test]
    fn a_port_with_a_listener_is_not_claimed() {
        let port = Port::claim();
        let same = u64::from(port.number() - NUMBERS.start);
        let _listener = TcpListener::bind(port.address()).unwrap();
        drop(port);
        assert!(Port::try_claim(same).is_none());
    }
}
