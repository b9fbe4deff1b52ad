//! What one peer may take of a table that all peers share.
//!
//! Always   A peer may take more as long as it has no more than `TIMES` times what is left: dynamic thresholds
//!          (Choudhury and Hahne 1998). A peer that is alone gets three quarters of the table; of several that want all of
//!          it, each gets the same. Each newcomer finds a quarter of what was left, so peers that work together fill a table
//!          when there are log4 of its size of them, and one more.
//! Always   What a peer has is counted in two rows of counters, which its id chooses. It is never counted too low. It is
//!          counted too high by what others have in both of its places: with thousands of peers, about a thousandth of all that is
//!          taken, so that the last thousandth of the table may stay free.
//! Memory   8 KiB for each table, whatever the number of peers.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use tidegate::{Clock, Limiter};

/// A peer may have so many times what is left.
const TIMES: usize = 3;
/// Counters in a row.
const COLUMNS: usize = 1 << 10;

/// Says which peer something is counted for: by the token that it has shown, else by its address.
///
/// It is a keyed hash, and the same after a restart with a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub(crate) u64);

impl PeerId {
    /// The program itself, which asks the engine without a wire.
    pub const OWN: Self = Self(0);

    /// The id of a peer. IPv6 addresses count by their first 64 bits, since that is the least that one customer is given.
    /// The limiter lends the secret of its fingerprints, which a snapshot keeps.
    #[expect(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
    pub(crate) fn new<C: Clock>(
        secret: &Limiter<C>,
        address: IpAddr,
        token: Option<&[u8]>,
    ) -> Self {
        let identity = match (token, address.to_canonical()) {
            (Some(token), _) => Identity::Token(token),
            (None, IpAddr::V4(address)) => Identity::Address(address.octets()),
            (None, IpAddr::V6(address)) => Identity::Network(address.to_bits() >> 64),
        };
        Self(secret.fingerprint(&identity) as u64)
    }

    /// Its places in the two rows.
    #[expect(clippy::cast_possible_truncation, reason = "only the lowest bits are wanted")]
    fn columns(self) -> [usize; 2] {
        [self.0 as usize % COLUMNS, (self.0 >> 32) as usize % COLUMNS]
    }
}

/// What a peer is told from others by.
#[derive(Hash)]
enum Identity<'a> {
    Token(&'a [u8]),
    Address([u8; 4]),
    Network(u128),
}

/// Places of one table: how many there are, and who has taken how many.
#[derive(Debug)]
pub(crate) struct Shares {
    max: AtomicUsize,
    taken: AtomicUsize,
    rows: [Box<[AtomicU32]>; 2],
}

impl Shares {
    pub(crate) fn new(max: usize) -> Self {
        let row = || (0..COLUMNS).map(|_| AtomicU32::new(0)).collect();
        Self { max: AtomicUsize::new(max), taken: AtomicUsize::new(0), rows: [row(), row()] }
    }

    /// Changes how many places there are. What is taken stays taken.
    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// How many places there are.
    pub(crate) fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// How many this peer has, or a few more.
    pub(crate) fn of(&self, peer: PeerId) -> usize {
        let counted = self.counters(peer).map(|counter| counter.load(Ordering::Relaxed));
        counted.into_iter().min().unwrap_or(0) as usize
    }

    /// Takes a place, unless the table is full or the peer has its share.
    #[must_use = "it has to be given back"]
    pub(crate) fn take(&self, peer: PeerId) -> bool {
        self.take_n(peer, 1)
    }

    /// Takes `n` places, or none: `n` times [`take`](Self::take), all of which must go well.
    #[must_use = "they have to be given back"]
    pub(crate) fn take_n(&self, peer: PeerId, n: u32) -> bool {
        let (places, more) = (n as usize, n.saturating_sub(1) as usize);
        let before = self.taken.fetch_add(places, Ordering::Relaxed);
        // What the last of them finds.
        let left = self.max().saturating_sub(before).saturating_sub(more);
        let may = left > 0 && self.of(peer) + more < left.saturating_mul(TIMES);
        if may {
            for counter in self.counters(peer) {
                counter.fetch_add(n, Ordering::Relaxed);
            }
        } else {
            self.taken.fetch_sub(places, Ordering::Relaxed);
        }
        may
    }

    /// Takes a place that a peer had before a restart: it has it, whatever its share is. `false` if the table is full.
    #[must_use = "it has to be given back"]
    pub(crate) fn take_again(&self, peer: PeerId) -> bool {
        if self.taken() >= self.max() {
            return false;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        for counter in self.counters(peer) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Whether this peer could take a place that another one gave back now.
    pub(crate) fn has_share_of_freed(&self, peer: PeerId) -> bool {
        let left = (self.max() + 1).saturating_sub(self.taken());
        self.of(peer) < left.saturating_mul(TIMES)
    }

    /// Counts a place for another peer than before, whatever its share is.
    pub(crate) fn hand_over(&self, from: PeerId, to: PeerId) {
        for counter in self.counters(to) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        for counter in self.counters(from) {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Gives one back.
    pub(crate) fn give_back(&self, peer: PeerId) {
        self.give_back_n(peer, 1);
    }

    /// Gives `n` back.
    pub(crate) fn give_back_n(&self, peer: PeerId, n: u32) {
        for counter in self.counters(peer) {
            counter.fetch_sub(n, Ordering::Relaxed);
        }
        self.taken.fetch_sub(n as usize, Ordering::Relaxed);
    }

    fn counters(&self, peer: PeerId) -> [&AtomicU32; 2] {
        let [first, second] = peer.columns();
        [&self.rows[0][first], &self.rows[1][second]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate::{ManualClock, Throttles};

    /// A number of peer number so many, spread as hashes are.
    fn peer(number: u64) -> PeerId {
        PeerId(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn take_all(shares: &Shares, peer: PeerId) -> usize {
        (0..=shares.max()).take_while(|_| shares.take(peer)).count()
    }

    #[test]
    fn one_peer_alone_gets_three_quarters_and_leaves_the_rest_for_others() {
        let shares = Shares::new(1_024);
        assert_eq!(take_all(&shares, peer(1)), 768);
        let others: Vec<usize> = (2..6).map(|number| take_all(&shares, peer(number))).collect();
        assert_eq!(others, [192, 48, 12, 3]);
        assert!(shares.take(peer(7)), "something is left");
        shares.give_back(peer(7));
        for _ in 0..768 {
            shares.give_back(peer(1));
        }
        assert_eq!(shares.taken(), 255);
        shares.hand_over(peer(2), peer(7));
        assert_eq!((shares.of(peer(2)), shares.of(peer(7)), shares.taken()), (191, 1, 255));
        shares.hand_over(peer(7), peer(2));
        assert!(take_all(&shares, peer(8)) > 500, "what was given back is for all");
    }

    #[test]
    fn many_at_once_are_as_many_as_one_after_the_other_or_none() {
        let (at_once, one_by_one) = (Shares::new(1_024), Shares::new(1_024));
        for (number, n) in
            [(1, 700), (1, 68), (1, 1), (2, 193), (2, 192), (3, 0), (3, 48), (4, 2_000)]
        {
            let before = one_by_one.taken();
            let taken = (0..n).take_while(|_| one_by_one.take(peer(number))).count();
            let may = at_once.take_n(peer(number), n);
            assert_eq!(may, taken == n as usize, "peer {number} takes {n}");
            if !may {
                (0..taken).for_each(|_| one_by_one.give_back(peer(number)));
                assert_eq!(one_by_one.taken(), before);
            }
            assert_eq!(at_once.taken(), one_by_one.taken());
        }
        at_once.give_back_n(peer(1), 768);
        assert_eq!((at_once.of(peer(1)), at_once.taken()), (0, 240));
    }

    #[test]
    fn peers_that_all_want_everything_get_the_same() {
        let shares = Shares::new(1_000);
        let mut had = [0; 10];
        for _ in 0..1_000 {
            for (number, had) in (0..).zip(&mut had) {
                *had += usize::from(shares.take(peer(number)));
            }
        }
        let (least, most) = (had.iter().min().unwrap(), had.iter().max().unwrap());
        assert!(*least >= 95 && *most <= 100, "{had:?}");
        assert!(shares.taken() < 1_000, "nor is it full");
    }

    #[test]
    fn a_small_table_has_a_place_for_one_peer_and_never_more_than_it_has() {
        for max in 1..10 {
            let shares = Shares::new(max);
            assert!(take_all(&shares, peer(1)) >= max.min(2));
            let number = (2..50).filter(|number| shares.take(peer(*number))).count();
            assert!(number + shares.of(peer(1)) <= max);
        }
    }

    #[test]
    fn a_peer_is_its_token_or_its_address_or_its_ipv6_network() {
        let throttles = Throttles::with_clock(ManualClock::new());
        let id = |address: &str, token| {
            PeerId::new(throttles.limiter(), address.parse().unwrap(), token)
        };
        let same = [("::ffff:192.0.2.1", "192.0.2.1"), ("2001:db8::1", "2001:db8::ffff:1")];
        for (one, other) in same {
            assert_eq!(id(one, None), id(other, None));
            assert_eq!(id(one, Some(b"t".as_slice())), id("::1", Some(b"t")));
        }
        let others = [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8:0:1::1")];
        for (one, other) in others {
            assert_ne!(id(one, None), id(other, None));
        }
        assert_ne!(id("::1", None), id("::1", Some(b"t")));
        assert_ne!(id("::1", Some(b"u")), id("::1", Some(b"t")));
    }
}
