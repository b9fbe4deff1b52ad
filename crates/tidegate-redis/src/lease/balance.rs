//! What a node may spend of one key without asking Redis. Pure, so that a simulation can run a hundred nodes.
//!
//! Invariant  Only leases are spent, and only until they end, counted from before the request for them was sent: so a lease
//!            ends here before it ends in Redis.
//! Invariant  A lease that is returned is not spent any more before the request that returns it is sent.
//! Bound      Two leases at a time: the one that is spent, and the next.

/// Microseconds on a clock that never goes back.
pub(crate) type Micros = u64;

/// A lease ends this fraction earlier on the node than in Redis, since clocks do not run equally fast.
const MARGIN_PARTS: u64 = 128;
/// A lease that is used up within this fraction of its time was too small.
const SOON_PARTS: u64 = 8;
/// The next lease is requested when this fraction of the current one remains.
const LOW_PARTS: u64 = 4;
const LEASES_MAX: usize = 2;
/// The pause after a request for a lease that was not granted because too much is leased: further requests would be in vain.
const PAUSE: Micros = 100_000;
const SIZE_FIRST: u64 = 8;

/// A key's leases on one node.
#[derive(Clone, Debug)]
pub(crate) struct LeaseBalance {
    leases: Vec<Lease>,
    /// Leases that are used up or returned, to be sent with the next request.
    closed: Vec<ClosedLease>,
    /// The size of the next lease.
    size: u64,
    /// The total cost of the requests that wait for a lease.
    waiting_cost: u64,
    is_requested: bool,
    is_low_reported: bool,
    last_spent: Micros,
    paused_until: Micros,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    number: u64,
    amount: u64,
    left: u64,
    since: Micros,
    ends: Micros,
}

/// A lease that is returned, and how much of it was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClosedLease {
    pub(crate) number: u64,
    pub(crate) amount: u64,
    pub(crate) unused: u64,
}

/// A request for a lease, which also returns others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRequest {
    pub(crate) closed: Vec<ClosedLease>,
    /// The size of the lease; 0 to only return others.
    pub(crate) size: u64,
    /// The time before it is sent.
    pub(crate) sent: Micros,
}

/// A lease that Redis has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) number: u64,
    pub(crate) amount: u64,
    pub(crate) lasts: Micros,
}

impl LeaseBalance {
    pub(crate) fn new(now: Micros) -> Self {
        Self {
            leases: Vec::new(),
            closed: Vec::new(),
            size: SIZE_FIRST,
            waiting_cost: 0,
            is_requested: false,
            is_low_reported: false,
            last_spent: now,
            paused_until: 0,
        }
    }

    /// Requests no lease for a while: too much is leased already.
    pub(crate) fn pause(&mut self, now: Micros) {
        self.paused_until = now.saturating_add(PAUSE);
    }

    pub(crate) fn is_paused(&self, now: Micros) -> bool {
        now < self.paused_until
    }

    /// Spends the cost, if one lease suffices.
    #[inline]
    pub(crate) fn spend(&mut self, now: Micros, cost: u64) -> bool {
        let Some(lease) =
            self.leases.iter_mut().find(|lease| lease.left >= cost && now < lease.ends)
        else {
            return false;
        };
        lease.left -= cost;
        self.last_spent = now;
        true
    }

    /// Returns how much can be spent now.
    #[inline]
    pub(crate) fn remaining(&self, now: Micros) -> u64 {
        self.leases.iter().filter(|lease| now < lease.ends).map(|lease| lease.left).sum()
    }

    /// Returns whether the next lease should be requested, if this much remains.
    #[inline]
    pub(crate) fn is_low(&self, left: u64) -> bool {
        let amount = self.leases.last().map_or(0, |lease| lease.amount);
        !self.is_requested && self.leases.len() < LEASES_MAX && left * LOW_PARTS < amount
    }

    /// Returns the same, but `true` only once before each request for a lease.
    #[inline]
    pub(crate) fn reports_low(&mut self, left: u64) -> bool {
        if self.is_low_reported || !self.is_low(left) {
            return false;
        }
        self.is_low_reported = true;
        true
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.is_requested
    }

    /// Returns whether all leases have ended.
    pub(crate) fn is_expired(&self, now: Micros) -> bool {
        !self.is_requested && self.leases.iter().all(|lease| lease.ends <= now)
    }

    /// Returns when something was spent last.
    pub(crate) fn last_spent(&self) -> Micros {
        self.last_spent
    }

    /// Requests a lease of at least `cost`. There is one request at a time, until it is [answered](Self::receive).
    pub(crate) fn request(&mut self, now: Micros, cost: u64, size_max: u64) -> LeaseRequest {
        self.close_ended(now);
        (self.is_requested, self.is_low_reported) = (true, false);
        let size = self.size.max(std::mem::take(&mut self.waiting_cost)).min(size_max).max(cost);
        LeaseRequest { closed: std::mem::take(&mut self.closed), size, sent: now }
    }

    /// Counts a request that waits for the lease, so that the next lease suffices for all waiting requests.
    pub(crate) fn add_waiter(&mut self, cost: u64) {
        self.waiting_cost = self.waiting_cost.saturating_add(cost);
    }

    /// Stops spending, and returns all leases.
    pub(crate) fn return_all(&mut self, now: Micros) -> Option<LeaseRequest> {
        self.close_ended(now);
        for lease in self.leases.drain(..) {
            let Lease { number, amount, left, .. } = lease;
            self.closed.push(ClosedLease { number, amount, unused: left });
        }
        if self.closed.is_empty() {
            return None;
        }
        self.size = (self.size / 2).max(1);
        Some(LeaseRequest { closed: std::mem::take(&mut self.closed), size: 0, sent: now })
    }

    /// Records the grant of Redis, or that there is none.
    pub(crate) fn receive(&mut self, request: &LeaseRequest, grant: Option<Grant>) {
        self.is_requested = false;
        let Some(grant) = grant else {
            self.waiting_cost = 0;
            return;
        };
        self.waiting_cost = self.waiting_cost.saturating_sub(grant.amount);
        let lasts = grant.lasts - grant.lasts / MARGIN_PARTS;
        let (number, amount) = (grant.number, grant.amount);
        let ends = request.sent.saturating_add(lasts);
        self.leases.push(Lease { number, amount, left: amount, since: request.sent, ends });
    }

    /// Removes leases that are used up or have ended, and adapts the size of the next lease.
    fn close_ended(&mut self, now: Micros) {
        let mut open = Vec::with_capacity(LEASES_MAX);
        for lease in self.leases.drain(..) {
            if lease.left == 0 {
                let lasted = now.saturating_sub(lease.since);
                if lasted < (lease.ends - lease.since) / SOON_PARTS {
                    self.size = self.size.max(lease.amount).saturating_mul(2);
                }
                self.closed.push(ClosedLease {
                    number: lease.number,
                    amount: lease.amount,
                    unused: 0,
                });
            } else if lease.ends <= now {
                if lease.left > lease.amount / 2 {
                    self.size = (self.size / 2).max(1);
                }
            } else {
                open.push(lease);
            }
        }
        self.leases = open;
        // Leases that could not be returned expire in Redis.
        let surplus = self.closed.len().saturating_sub(2 * LEASES_MAX);
        self.closed.drain(..surplus);
    }

    /// Caps the size of the next lease, after a grant that was smaller than requested.
    pub(crate) fn cap_size(&mut self, amount: u64) {
        self.size = self.size.min(amount.saturating_mul(2)).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;

    fn lent(balance: &mut LeaseBalance, sent: Micros, amount: u64) -> LeaseRequest {
        let request = balance.request(sent, 1, 1_000);
        balance.receive(&request, Some(Grant { number: sent + 1, amount, lasts: SECOND }));
        request
    }

    #[test]
    fn only_leases_are_spent() {
        let mut balance = LeaseBalance::new(0);
        assert!(!balance.spend(0, 1));
        lent(&mut balance, 0, 3);
        assert!(
            balance.spend(10, 2)
                && !balance.spend(10, 2)
                && balance.spend(10, 1)
                && !balance.spend(10, 1)
        );
    }

    #[test]
    fn a_lease_ends_before_it_ends_in_redis() {
        let mut balance = LeaseBalance::new(0);
        let request = balance.request(500, 1, 10);
        assert_eq!(request.sent, 500, "counted from before it was sent");
        balance.receive(&request, Some(Grant { number: 1, amount: 5, lasts: SECOND }));
        let ends = 500 + SECOND - SECOND / MARGIN_PARTS;
        assert!(balance.spend(ends - 1, 1));
        assert!(!balance.spend(ends, 1));
        assert!(balance.is_expired(ends));
    }

    #[test]
    fn a_returned_lease_is_not_spent() {
        let mut balance = LeaseBalance::new(0);
        lent(&mut balance, 0, 5);
        assert!(balance.spend(1, 2));
        let request = balance.return_all(2).expect("three are left");
        assert_eq!(request.closed, [ClosedLease { number: 1, amount: 5, unused: 3 }]);
        assert!(!balance.spend(3, 1));
        assert_eq!(balance.return_all(4), None, "once");
    }

    #[test]
    fn the_size_doubles_after_a_lease_that_is_used_up_early_and_halves_after_one_that_is_not() {
        let mut balance = LeaseBalance::new(0);
        lent(&mut balance, 0, 8);
        assert!(balance.spend(10, 8));
        let request = balance.request(20, 1, 1_000);
        assert_eq!((request.size, request.closed.len()), (16, 1));
        balance.receive(&request, Some(Grant { number: 2, amount: 16, lasts: SECOND }));
        assert!(balance.spend(30, 1));
        assert_eq!(balance.request(2 * SECOND, 1, 1_000).size, 8, "fifteen expired");
    }

    #[test]
    fn the_next_lease_suffices_for_all_waiting_requests() {
        let mut balance = LeaseBalance::new(0);
        let request = balance.request(0, 1, 1_000);
        for _ in 0..100 {
            balance.add_waiter(1);
        }
        balance.receive(&request, Some(Grant { number: 1, amount: 8, lasts: SECOND }));
        assert!(balance.spend(1, 8));
        let request = balance.request(1, 1, 1_000);
        assert_eq!(request.size, 92, "eight of them have been served");
        balance.add_waiter(1);
        balance.receive(&request, None);
        assert_eq!(balance.request(2, 1, 1_000).size, 16, "no request waits any more");
    }

    #[test]
    fn no_lease_is_requested_during_a_pause() {
        let mut balance = LeaseBalance::new(0);
        assert!(!balance.is_paused(5));
        balance.pause(5);
        assert!(balance.is_paused(5) && balance.is_paused(5 + PAUSE - 1));
        assert!(!balance.is_paused(5 + PAUSE));
    }

    #[test]
    fn the_next_lease_is_requested_once_before_this_one_is_used_up() {
        let mut balance = LeaseBalance::new(0);
        lent(&mut balance, 0, 8);
        let is_low = |balance: &LeaseBalance, now| balance.is_low(balance.remaining(now));
        assert!(!is_low(&balance, 1));
        assert!(balance.spend(1, 7));
        assert!(is_low(&balance, 2) && balance.reports_low(1) && !balance.reports_low(1));
        let request = balance.request(2, 1, 1_000);
        assert!(!is_low(&balance, 3) && balance.is_requested());
        balance.receive(&request, None);
        assert!(!balance.is_requested() && is_low(&balance, 3));
    }
}
