//! How much of a bounded table one client may take, when all clients share the table.
//!
//! Always   A client may take one more entry as long as it has fewer than [`TIMES`] times the entries that are free: dynamic
//!          thresholds (Choudhury and Hahne 1998). A client that is alone gets three quarters of the table; several that all want
//!          as much as possible get the same. Each new client finds a quarter of what was free before, so clients that work
//!          together fill a table of n entries when there are log4(n) + 1 of them.
//! Always   The entries of a client are counted in two rows of counters, chosen by its id. The count is never too low. It is too
//!          high by the entries of clients that share both counters: with thousands of clients, by about a thousandth of all
//!          entries, so the last thousandth of the table may stay free.
//! Memory   8 KiB a table, whatever the number of clients.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// A client may have this many times as many entries as are free.
const TIMES: usize = 3;
/// Counters in each row.
const COLUMNS: usize = 1 << 10;

/// Identifies the client that something is counted for: by its token if it has one, otherwise by its address.
///
/// The id is a keyed hash. It survives a restart with a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(u64);

impl ClientId {
    /// The program itself.
    pub const OWN: Self = Self(0);

    /// Returns the id of a client. IPv6 addresses count by their first 64 bits, the smallest network that a customer gets.
    /// `fingerprint` is a keyed hash with a secret that a snapshot keeps: [`Limiter::fingerprint`](crate::Limiter::fingerprint).
    #[expect(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
    pub fn new(
        fingerprint: impl FnOnce(&ClientIdentity<'_>) -> u128,
        address: IpAddr,
        token: Option<&[u8]>,
    ) -> Self {
        let identity = match (token, address.to_canonical()) {
            (Some(token), _) => ClientIdentity::Token(token),
            (None, IpAddr::V4(address)) => ClientIdentity::Address(address.octets()),
            (None, IpAddr::V6(address)) => ClientIdentity::Network(address.to_bits() >> 64),
        };
        Self(fingerprint(&identity) as u64)
    }

    /// Returns an id made of a number, as [`get`](Self::get) returned it.
    pub const fn from_u64(id: u64) -> Self {
        Self(id)
    }

    /// Returns the id as a number, to be written to a file.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns its column in each of the two rows.
    #[expect(clippy::cast_possible_truncation, reason = "only the lowest bits are wanted")]
    fn columns(self) -> [usize; 2] {
        [self.0 as usize % COLUMNS, (self.0 >> 32) as usize % COLUMNS]
    }
}

/// What identifies a client.
#[derive(Debug, Hash)]
pub enum ClientIdentity<'a> {
    /// The token it has shown.
    Token(&'a [u8]),
    /// Its IPv4 address.
    Address([u8; 4]),
    /// The first 64 bits of its IPv6 address.
    Network(u128),
}

/// The entries of one bounded table: how many there are, how many are taken, and how many of them by each client.
///
/// ```
/// use tidegate::store::{ClientId, Shares};
///
/// let entries = Shares::new(100);
/// let flood = (0..200).filter(|_| entries.take(ClientId::OWN)).count();
/// assert_eq!(flood, 75, "a quarter is left for other clients");
/// ```
#[derive(Debug)]
pub struct Shares {
    max: AtomicUsize,
    taken: AtomicUsize,
    rows: [Box<[AtomicU32]>; 2],
}

impl Shares {
    /// Makes a table of `max` entries, all free.
    pub fn new(max: usize) -> Self {
        let row = || (0..COLUMNS).map(|_| AtomicU32::new(0)).collect();
        Self { max: AtomicUsize::new(max), taken: AtomicUsize::new(0), rows: [row(), row()] }
    }

    /// Changes the number of entries. Entries that are taken stay taken.
    pub fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Returns the number of entries, free or taken.
    pub fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    /// Returns how many entries are taken.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns how many entries this client has taken, or a few more.
    pub fn of(&self, client: ClientId) -> usize {
        let counted = self.counters(client).map(|counter| counter.load(Ordering::Relaxed));
        counted.into_iter().min().unwrap_or(0) as usize
    }

    /// Takes an entry, unless the table is full or the client has its share.
    #[must_use = "an entry that was taken has to be given back"]
    pub fn take(&self, client: ClientId) -> bool {
        self.take_n(client, 1)
    }

    /// Takes `n` entries, or none if `n` calls of [`take`](Self::take) would not all succeed.
    #[must_use = "entries that were taken have to be given back"]
    pub fn take_n(&self, client: ClientId, n: u32) -> bool {
        let (places, more) = (n as usize, n.saturating_sub(1) as usize);
        let before = self.taken.fetch_add(places, Ordering::Relaxed);
        // What would be free for the last of them.
        let left = self.max().saturating_sub(before).saturating_sub(more);
        let may = left > 0 && self.of(client) + more < left.saturating_mul(TIMES);
        if may {
            for counter in self.counters(client) {
                counter.fetch_add(n, Ordering::Relaxed);
            }
        } else {
            self.taken.fetch_sub(places, Ordering::Relaxed);
        }
        may
    }

    /// Takes an entry that a client had before a restart, whatever its share is now. Returns `false` if the table is full.
    #[must_use = "an entry that was taken has to be given back"]
    pub fn take_again(&self, client: ClientId) -> bool {
        if self.taken() >= self.max() {
            return false;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        for counter in self.counters(client) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Returns whether this client could take an entry that another client gave back now.
    pub fn has_share_of_freed(&self, client: ClientId) -> bool {
        let left = (self.max() + 1).saturating_sub(self.taken());
        self.of(client) < left.saturating_mul(TIMES)
    }

    /// Moves one entry from one client to another, whatever the other's share is.
    pub fn hand_over(&self, from: ClientId, to: ClientId) {
        for counter in self.counters(to) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        for counter in self.counters(from) {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Gives an entry back.
    pub fn give_back(&self, client: ClientId) {
        self.give_back_n(client, 1);
    }

    /// Gives `n` entries back.
    pub fn give_back_n(&self, client: ClientId, n: u32) {
        for counter in self.counters(client) {
            counter.fetch_sub(n, Ordering::Relaxed);
        }
        self.taken.fetch_sub(n as usize, Ordering::Relaxed);
    }

    fn counters(&self, client: ClientId) -> [&AtomicU32; 2] {
        let [first, second] = client.columns();
        [&self.rows[0][first], &self.rows[1][second]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;
    use crate::throttle::Throttles;

    /// The id of the client with this number, spread over all bits as hashes are.
    fn client(number: u64) -> ClientId {
        ClientId(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn take_all(shares: &Shares, client: ClientId) -> usize {
        (0..=shares.max()).take_while(|_| shares.take(client)).count()
    }

    #[test]
    fn a_client_alone_gets_three_quarters_and_leaves_the_rest_for_others() {
        let shares = Shares::new(1_024);
        assert_eq!(take_all(&shares, client(1)), 768);
        let others: Vec<usize> = (2..6).map(|number| take_all(&shares, client(number))).collect();
        assert_eq!(others, [192, 48, 12, 3]);
        assert!(shares.take(client(7)), "an entry is left");
        shares.give_back(client(7));
        for _ in 0..768 {
            shares.give_back(client(1));
        }
        assert_eq!(shares.taken(), 255);
        shares.hand_over(client(2), client(7));
        assert_eq!((shares.of(client(2)), shares.of(client(7)), shares.taken()), (191, 1, 255));
        shares.hand_over(client(7), client(2));
        assert!(
            take_all(&shares, client(8)) > 500,
            "entries that were given back are free for every client"
        );
    }

    #[test]
    fn taking_several_at_once_takes_as_many_as_one_by_one_or_none() {
        let (at_once, one_by_one) = (Shares::new(1_024), Shares::new(1_024));
        for (number, n) in
            [(1, 700), (1, 68), (1, 1), (2, 193), (2, 192), (3, 0), (3, 48), (4, 2_000)]
        {
            let before = one_by_one.taken();
            let taken = (0..n).take_while(|_| one_by_one.take(client(number))).count();
            let may = at_once.take_n(client(number), n);
            assert_eq!(may, taken == n as usize, "client {number} takes {n}");
            if !may {
                (0..taken).for_each(|_| one_by_one.give_back(client(number)));
                assert_eq!(one_by_one.taken(), before);
            }
            assert_eq!(at_once.taken(), one_by_one.taken());
        }
        at_once.give_back_n(client(1), 768);
        assert_eq!((at_once.of(client(1)), at_once.taken()), (0, 240));
    }

    #[test]
    fn clients_that_all_take_as_much_as_they_can_get_the_same() {
        let shares = Shares::new(1_000);
        let mut had = [0; 10];
        for _ in 0..1_000 {
            for (number, had) in (0..).zip(&mut had) {
                *had += usize::from(shares.take(client(number)));
            }
        }
        let (least, most) = (had.iter().min().unwrap(), had.iter().max().unwrap());
        assert!(*least >= 95 && *most <= 100, "{had:?}");
        assert!(shares.taken() < 1_000, "the table is not full");
    }

    #[test]
    fn a_small_table_has_an_entry_for_one_client_and_never_hands_out_more_than_it_has() {
        for max in 1..10 {
            let shares = Shares::new(max);
            assert!(take_all(&shares, client(1)) >= max.min(2));
            let number = (2..50).filter(|number| shares.take(client(*number))).count();
            assert!(number + shares.of(client(1)) <= max);
        }
    }

    #[test]
    fn a_client_is_identified_by_its_token_or_address_or_ipv6_network() {
        let throttles = Throttles::with_clock(ManualClock::new());
        let id = |address: &str, token| {
            ClientId::new(|it| throttles.limiter().fingerprint(it), address.parse().unwrap(), token)
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
