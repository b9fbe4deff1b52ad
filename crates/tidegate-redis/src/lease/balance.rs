//! What a node may spend of one key without asking: pure, so that a hundred of them can be simulated.
//!
//! Always   Only what was charged before is spent, and only until its lease has run out, counted from before the
//!          request for it was sent: so never after Redis has forgotten it.
//!          What is given back is not spent any more, before anybody is told.
//! Always   Two leases at most: one that is spent, and the next.

/// Microseconds on a clock that never goes back.
pub(crate) type Micros = u64;

/// What a lease may be longer than this node's clock says: clocks do not run equally fast.
const MARGIN_PARTS: u64 = 128;
/// A lease that is used up sooner than this part of its time was too small.
const SOON_PARTS: u64 = 8;
/// The next lease is asked for when so much of one is left.
const LOW_PARTS: u64 = 4;
const LEASES_MAX: usize = 2;
/// Where too much is lent, no lease is asked for so long: it would be one round trip more for each request, for nothing.
const REST: Micros = 100_000;
const SIZE_FIRST: u64 = 8;

/// A key's leases on one node.
#[derive(Clone, Debug)]
pub(crate) struct Purse {
    held: Vec<Held>,
    /// Leases that are used up, or are not wanted any more: Redis is told with the next request.
    closed: Vec<Closed>,
    /// How much is asked for next.
    size: u64,
    /// How much those want together who wait for an answer.
    wanted: u64,
    is_asking: bool,
    /// Whether somebody was told that it is low.
    is_told: bool,
    spent_last: Micros,
    /// Until when nothing is asked for.
    rests_until: Micros,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    number: u64,
    amount: u64,
    left: u64,
    since: Micros,
    ends: Micros,
}

/// A lease that is given back, and what was not used of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) number: u64,
    pub(crate) amount: u64,
    pub(crate) unused: u64,
}

/// What is asked of Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) closed: Vec<Closed>,
    /// How much would be used.
    pub(crate) size: u64,
    /// When it is about to be sent.
    pub(crate) sent: Micros,
}

/// What Redis lends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) number: u64,
    pub(crate) amount: u64,
    pub(crate) lasts: Micros,
}

impl Purse {
    pub(crate) fn new(now: Micros) -> Self {
        Self {
            held: Vec::new(),
            closed: Vec::new(),
            size: SIZE_FIRST,
            wanted: 0,
            is_asking: false,
            is_told: false,
            spent_last: now,
            rests_until: 0,
        }
    }

    /// There is room, and too much is lent already: no lease is asked for, for a while.
    pub(crate) fn rest(&mut self, now: Micros) {
        self.rests_until = now.saturating_add(REST);
    }

    pub(crate) fn is_resting(&self, now: Micros) -> bool {
        now < self.rests_until
    }

    /// Spends, if there is enough in one lease.
    #[inline]
    pub(crate) fn spend(&mut self, now: Micros, cost: u64) -> bool {
        let Some(held) = self.held.iter_mut().find(|held| held.left >= cost && now < held.ends)
        else {
            return false;
        };
        held.left -= cost;
        self.spent_last = now;
        true
    }

    /// How much can be spent now.
    #[inline]
    pub(crate) fn left(&self, now: Micros) -> u64 {
        self.held.iter().filter(|held| now < held.ends).map(|held| held.left).sum()
    }

    /// Whether it is time to ask for the next lease, with so much left of this one.
    #[inline]
    pub(crate) fn is_low(&self, left: u64) -> bool {
        let amount = self.held.last().map_or(0, |held| held.amount);
        !self.is_asking && self.held.len() < LEASES_MAX && left * LOW_PARTS < amount
    }

    /// The same, and only once until somebody asks: one who fetches is enough.
    #[inline]
    pub(crate) fn tells_low(&mut self, left: u64) -> bool {
        if self.is_told || !self.is_low(left) {
            return false;
        }
        self.is_told = true;
        true
    }

    pub(crate) fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// Whether nobody would miss it.
    pub(crate) fn is_over(&self, now: Micros) -> bool {
        !self.is_asking && self.held.iter().all(|held| held.ends <= now)
    }

    /// When something was spent last.
    pub(crate) fn spent_last(&self) -> Micros {
        self.spent_last
    }

    /// Asks for `cost` at least. Nobody asks again before this is [answered](Self::answered).
    pub(crate) fn ask(&mut self, now: Micros, cost: u64, size_max: u64) -> Request {
        self.tidy(now);
        (self.is_asking, self.is_told) = (true, false);
        let size = self.size.max(std::mem::take(&mut self.wanted)).min(size_max).max(cost);
        Request { closed: std::mem::take(&mut self.closed), size, sent: now }
    }

    /// Somebody waits for the answer, to spend so much: what the answer does not bring is asked for at once, and not
    /// in many small leases one after the other.
    pub(crate) fn wait(&mut self, cost: u64) {
        self.wanted = self.wanted.saturating_add(cost);
    }

    /// Stops spending, and gives back what is left.
    pub(crate) fn give_back(&mut self, now: Micros) -> Option<Request> {
        self.tidy(now);
        for held in self.held.drain(..) {
            let Held { number, amount, left, .. } = held;
            self.closed.push(Closed { number, amount, unused: left });
        }
        if self.closed.is_empty() {
            return None;
        }
        self.size = (self.size / 2).max(1);
        Some(Request { closed: std::mem::take(&mut self.closed), size: 0, sent: now })
    }

    /// Redis's answer, or that there was none.
    pub(crate) fn answered(&mut self, request: &Request, grant: Option<Grant>) {
        self.is_asking = false;
        let Some(grant) = grant else {
            self.wanted = 0;
            return;
        };
        self.wanted = self.wanted.saturating_sub(grant.amount);
        let lasts = grant.lasts - grant.lasts / MARGIN_PARTS;
        let (number, amount) = (grant.number, grant.amount);
        let ends = request.sent.saturating_add(lasts);
        self.held.push(Held { number, amount, left: amount, since: request.sent, ends });
    }

    /// Takes out what is used up or over, and learns from it how much is used.
    fn tidy(&mut self, now: Micros) {
        let mut kept = Vec::with_capacity(LEASES_MAX);
        for held in self.held.drain(..) {
            if held.left == 0 {
                let lasted = now.saturating_sub(held.since);
                if lasted < (held.ends - held.since) / SOON_PARTS {
                    self.size = self.size.max(held.amount).saturating_mul(2);
                }
                self.closed.push(Closed { number: held.number, amount: held.amount, unused: 0 });
            } else if held.ends <= now {
                if held.left > held.amount / 2 {
                    self.size = (self.size / 2).max(1);
                }
            } else {
                kept.push(held);
            }
        }
        self.held = kept;
        // Leases that nobody could tell Redis about end by themselves.
        let surplus = self.closed.len().saturating_sub(2 * LEASES_MAX);
        self.closed.drain(..surplus);
    }

    /// No lease is larger than this: what was asked for was too much.
    pub(crate) fn learn(&mut self, amount: u64) {
        self.size = self.size.min(amount.saturating_mul(2)).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;

    fn lent(purse: &mut Purse, sent: Micros, amount: u64) -> Request {
        let request = purse.ask(sent, 1, 1_000);
        purse.answered(&request, Some(Grant { number: sent + 1, amount, lasts: SECOND }));
        request
    }

    #[test]
    fn nothing_is_spent_that_was_not_lent() {
        let mut purse = Purse::new(0);
        assert!(!purse.spend(0, 1));
        lent(&mut purse, 0, 3);
        assert!(
            purse.spend(10, 2) && !purse.spend(10, 2) && purse.spend(10, 1) && !purse.spend(10, 1)
        );
    }

    #[test]
    fn a_lease_ends_before_redis_says_so() {
        let mut purse = Purse::new(0);
        let request = purse.ask(500, 1, 10);
        assert_eq!(request.sent, 500, "counted from before it was sent");
        purse.answered(&request, Some(Grant { number: 1, amount: 5, lasts: SECOND }));
        let ends = 500 + SECOND - SECOND / MARGIN_PARTS;
        assert!(purse.spend(ends - 1, 1));
        assert!(!purse.spend(ends, 1));
        assert!(purse.is_over(ends));
    }

    #[test]
    fn what_is_given_back_is_not_spent() {
        let mut purse = Purse::new(0);
        lent(&mut purse, 0, 5);
        assert!(purse.spend(1, 2));
        let request = purse.give_back(2).expect("three are left");
        assert_eq!(request.closed, [Closed { number: 1, amount: 5, unused: 3 }]);
        assert!(!purse.spend(3, 1));
        assert_eq!(purse.give_back(4), None, "once");
    }

    #[test]
    fn what_is_used_up_soon_is_asked_for_twice_and_what_is_left_over_by_half() {
        let mut purse = Purse::new(0);
        lent(&mut purse, 0, 8);
        assert!(purse.spend(10, 8));
        let request = purse.ask(20, 1, 1_000);
        assert_eq!((request.size, request.closed.len()), (16, 1));
        purse.answered(&request, Some(Grant { number: 2, amount: 16, lasts: SECOND }));
        assert!(purse.spend(30, 1));
        assert_eq!(purse.ask(2 * SECOND, 1, 1_000).size, 8, "fifteen ran out");
    }

    #[test]
    fn what_those_want_who_wait_is_asked_for_at_once() {
        let mut purse = Purse::new(0);
        let request = purse.ask(0, 1, 1_000);
        for _ in 0..100 {
            purse.wait(1);
        }
        purse.answered(&request, Some(Grant { number: 1, amount: 8, lasts: SECOND }));
        assert!(purse.spend(1, 8));
        let request = purse.ask(1, 1, 1_000);
        assert_eq!(request.size, 92, "but for what eight of them got");
        purse.wait(1);
        purse.answered(&request, None);
        assert_eq!(purse.ask(2, 1, 1_000).size, 16, "nobody waits any more");
    }

    #[test]
    fn where_too_much_is_lent_nothing_is_asked_for_a_while() {
        let mut purse = Purse::new(0);
        assert!(!purse.is_resting(5));
        purse.rest(5);
        assert!(purse.is_resting(5) && purse.is_resting(5 + REST - 1));
        assert!(!purse.is_resting(5 + REST));
    }

    #[test]
    fn the_next_is_asked_for_before_this_one_is_used_up_and_by_one_only() {
        let mut purse = Purse::new(0);
        lent(&mut purse, 0, 8);
        let is_low = |purse: &Purse, now| purse.is_low(purse.left(now));
        assert!(!is_low(&purse, 1));
        assert!(purse.spend(1, 7));
        assert!(is_low(&purse, 2) && purse.tells_low(1) && !purse.tells_low(1));
        let request = purse.ask(2, 1, 1_000);
        assert!(!is_low(&purse, 3) && purse.is_asking());
        purse.answered(&request, None);
        assert!(!purse.is_asking() && is_low(&purse, 3));
    }
}
