//! Idempotent requests in this process: the decisions of requests that their senders may repeat.
//!
//! Always   One lock is held from the lookup until the decision is stored: of two equal requests that arrive together, one is
//!          charged, and both get the same decision. Redis does the same for a shared limit in one script (`driver/one.lua`).
//! Always   Only charged requests are stored. A denied request is decided anew, and a request of cost 0 would waste an entry.
//! Always   At most [`MAX_DECISIONS`] decisions are stored, each for [`IDEMPOTENCY_WINDOW`], and each client has its [share](Shares).
//!          When there is no entry left, a request is refused and not charged: evicting another decision would charge that
//!          request twice.
//! Memory   A fingerprint and a decision, about 160 bytes each, however long keys and ids are: 42 MB at most, returned when fewer
//!          are stored. Nothing before the first.

use super::{ClientId, Shares, StoreError};
use crate::sync::lock_std;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use tidegate_core::{Decision, Span, Timestamp};

/// How long the decision of an idempotent request is kept.
pub const IDEMPOTENCY_WINDOW: Span = Span::from_secs(10);

/// How many decisions are kept at most: enough for 26 000 requests with an id a second.
const MAX_DECISIONS: usize = 1 << 18;

/// How many expired decisions one request removes at most, so that none has to remove a quarter of a million.
const EXPIRED_AT_ONCE: usize = 64;

/// Below this capacity, memory is not returned.
const CAPACITY_KEPT: usize = 1 << 10;

/// Maximum length of an idempotency key.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 256;

/// The id that a client gives to a request that it may repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey<'a>(&'a str);

/// The text cannot be an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidIdempotencyKey {
    /// The length of the text.
    pub bytes: usize,
}

impl std::error::Error for InvalidIdempotencyKey {}

impl std::fmt::Display for InvalidIdempotencyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an id has 1 to {IDEMPOTENCY_KEY_BYTES_MAX} bytes, this one has {}", self.bytes)
    }
}

/// What makes two requests the same request.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct IdempotentRequest<'a> {
    /// The number of the limiter's store.
    pub(crate) limit: u64,
    pub(crate) key: u128,
    pub(crate) cost: u64,
    pub(crate) id: IdempotencyKey<'a>,
}

/// The decisions of idempotent requests, for one limiter or for several that share the bound on its size: see
/// [`Builder::idempotency_cache`](crate::limiter::Builder::idempotency_cache).
#[derive(Debug)]
pub struct IdempotencyCache {
    stored: Mutex<Stored>,
    secret: RandomState,
    shares: Shares,
}

impl Default for IdempotencyCache {
    fn default() -> Self {
        let shares = Shares::new(MAX_DECISIONS);
        Self { stored: Mutex::default(), secret: RandomState::default(), shares }
    }
}

#[derive(Debug, Default)]
struct Stored {
    /// The decisions, each with its expiry.
    decisions: HashMap<u128, (Timestamp, Decision)>,
    /// The entries in the order of their expiry, which is that of their insertion: time does not go back under a lock.
    expiries: VecDeque<(Timestamp, u128, ClientId)>,
}

impl<'a> IdempotencyKey<'a> {
    /// Makes an idempotency key of a text.
    ///
    /// # Errors
    /// The text is empty or too long.
    pub fn new(text: &'a str) -> Result<Self, InvalidIdempotencyKey> {
        if (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&text.len()) {
            return Ok(Self(text));
        }
        Err(InvalidIdempotencyKey { bytes: text.len() })
    }

    /// Returns the text.
    pub fn as_str(self) -> &'a str {
        self.0
    }
}

impl IdempotencyCache {
    /// Returns the decision that was stored for this request, or calls `decide` and stores its decision.
    pub(crate) fn decide(
        &self,
        (request, client): (&IdempotentRequest<'_>, ClientId),
        now: impl FnOnce() -> Timestamp,
        decide: impl FnOnce() -> Decision,
    ) -> Result<Decision, StoreError> {
        let fingerprint = self.fingerprint(request);
        let mut stored = lock_std(&self.stored);
        let now = now();
        stored.remove_expired(now, &self.shares);
        if let Some((expiry, decision)) = stored.decisions.get(&fingerprint)
            && now < *expiry
        {
            return Ok(*decision);
        }
        if !self.shares.take(client) {
            return Err(StoreError::TooManyIdempotencyKeys { max: MAX_DECISIONS });
        }
        let decision = decide();
        if decision.is_deny() || request.cost == 0 {
            self.shares.give_back(client);
            return Ok(decision);
        }
        let expiry = now + IDEMPOTENCY_WINDOW;
        stored.decisions.insert(fingerprint, (expiry, decision));
        stored.expiries.push_back((expiry, fingerprint, client));
        Ok(decision)
    }

    /// A keyed hash: its secret is drawn when the process starts, so no client can make two requests collide.
    fn fingerprint(&self, request: &IdempotentRequest<'_>) -> u128 {
        let half = |which: u8| u128::from(self.secret.hash_one((which, request)));
        half(0) << 64 | half(1)
    }
}

impl Stored {
    fn remove_expired(&mut self, now: Timestamp, shares: &Shares) {
        for _ in 0..EXPIRED_AT_ONCE {
            let expired = self.expiries.front().filter(|(expiry, ..)| *expiry <= now);
            let Some(&(expiry, fingerprint, client)) = expired else { break };
            self.expiries.pop_front();
            shares.give_back(client);
            // The request may have been decided anew since, with a later expiry.
            if self.decisions.get(&fingerprint).is_some_and(|(stored, _)| *stored == expiry) {
                self.decisions.remove(&fingerprint);
            }
        }
        let capacity = 2 * self.decisions.len().max(CAPACITY_KEPT);
        if self.decisions.capacity() / 4 > capacity {
            self.decisions.shrink_to(capacity);
            self.expiries.shrink_to(capacity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, ManualClock};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tidegate_core::{Retry, Verdict};

    const REQUEST: IdempotentRequest<'_> =
        IdempotentRequest { limit: 1, key: 7, cost: 1, id: IdempotencyKey("7") };

    /// A decision that differs from others by this number.
    fn decision(remaining: u64) -> Decision {
        let mut decision = Decision::UNLIMITED;
        decision.remaining = remaining;
        decision
    }

    /// A cache with a clock that the test sets.
    #[derive(Default)]
    struct Fixture {
        cache: IdempotencyCache,
        clock: ManualClock,
    }

    impl Fixture {
        fn decide(
            &self,
            request: &IdempotentRequest<'_>,
            client: ClientId,
            decide: impl FnOnce() -> Decision,
        ) -> Result<Decision, StoreError> {
            self.cache.decide((request, client), || self.clock.now(), decide)
        }

        fn remaining(&self, request: &IdempotentRequest<'_>, remaining: u64) -> u64 {
            self.decide(request, ClientId::OWN, || decision(remaining)).unwrap().remaining
        }
    }

    #[test]
    fn a_repeated_request_gets_the_first_decision_until_it_expires() {
        let fixture = Fixture::default();
        assert_eq!(fixture.remaining(&REQUEST, 9), 9);
        fixture.clock.advance(IDEMPOTENCY_WINDOW.saturating_sub(Span::from_micros(1)));
        assert_eq!(fixture.remaining(&REQUEST, 8), 9);
        fixture.clock.advance(Span::from_micros(1));
        assert_eq!(fixture.remaining(&REQUEST, 7), 7);
        assert_eq!(fixture.cache.stored.lock().unwrap().expiries.len(), 1);
    }

    #[test]
    fn another_limit_key_cost_or_id_is_another_request() {
        let fixture = Fixture::default();
        let others = [
            REQUEST,
            IdempotentRequest { limit: 2, ..REQUEST },
            IdempotentRequest { key: 8, ..REQUEST },
            IdempotentRequest { cost: 2, ..REQUEST },
            IdempotentRequest { id: IdempotencyKey("77"), ..REQUEST },
        ];
        for (remaining, request) in (0..).zip(&others) {
            assert_eq!(fixture.remaining(request, remaining), remaining, "{request:?}");
        }
    }

    #[test]
    fn a_denied_request_is_decided_anew() {
        let fixture = Fixture::default();
        let mut denied = decision(0);
        denied.verdict = Verdict::Deny(Retry::Never);
        assert!(fixture.decide(&REQUEST, ClientId::OWN, || denied).unwrap().is_deny());
        assert_eq!(fixture.remaining(&REQUEST, 1), 1);
    }

    #[test]
    fn a_request_beyond_the_maximum_is_refused_and_not_charged() {
        let fixture = Fixture::default();
        // Each from a client of its own, so that every entry can be taken.
        let decide = |cost: u64, decide: &dyn Fn() -> Decision| {
            let client = ClientId::from_u64(cost.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            fixture.decide(&IdempotentRequest { cost, ..REQUEST }, client, decide)
        };
        let all = 1..=2 * MAX_DECISIONS as u64;
        let stored = all.take_while(|cost| decide(*cost, &|| decision(*cost)).is_ok()).count();
        // With that many clients, the counters that they share refuse a little early.
        assert!(
            (MAX_DECISIONS - MAX_DECISIONS / 1_000..=MAX_DECISIONS).contains(&stored),
            "{stored}"
        );
        let max = stored as u64;
        let refused = decide(max + 1, &|| panic!("the request must not be decided"));
        assert!(matches!(refused, Err(StoreError::TooManyIdempotencyKeys { max: MAX_DECISIONS })));
        assert_eq!(decide(1, &|| decision(7)).unwrap().remaining, 1, "it is stored");
        fixture.clock.advance(IDEMPOTENCY_WINDOW);
        assert_eq!(decide(max, &|| decision(7)).unwrap().remaining, 7, "it has expired");
        // Expired entries are removed a few at a time, and the one that was decided anew is not.
        for cost in 1..max / 32 {
            let _ = decide(max + cost, &|| decision(0)).expect("entries are free again");
        }
        assert_eq!(decide(max, &|| decision(8)).unwrap().remaining, 7, "it is stored");
        fixture.clock.advance(IDEMPOTENCY_WINDOW);
        for _ in 0..max / 32 {
            let _ = decide(1, &|| decision(0)).expect("entries are free");
        }
        let stored = fixture.cache.stored.lock().unwrap();
        assert_eq!((stored.decisions.len(), stored.expiries.len()), (1, 1));
        let capacity = stored.decisions.capacity().max(stored.expiries.capacity());
        assert!(capacity <= 8 * CAPACITY_KEPT, "the capacity is still {capacity}");
    }

    #[test]
    fn a_client_that_sends_ever_new_ids_leaves_entries_for_others() {
        let fixture = Fixture::default();
        let decide = |cost: u64, client| {
            let request = IdempotentRequest { cost, ..REQUEST };
            fixture.decide(&request, ClientId::from_u64(client), || decision(0))
        };
        let stored = (1..=MAX_DECISIONS as u64).take_while(|cost| decide(*cost, 1).is_ok()).count();
        assert_eq!(stored, 3 * MAX_DECISIONS / 4);
        let _ = decide(u64::MAX, 2).expect("another client has entries");
    }

    #[test]
    fn a_request_of_cost_0_is_not_stored() {
        let fixture = Fixture::default();
        let peek = IdempotentRequest { cost: 0, ..REQUEST };
        assert_eq!(fixture.remaining(&peek, 1), 1);
        assert_eq!(fixture.remaining(&peek, 2), 2);
    }

    #[test]
    fn of_equal_requests_that_arrive_together_one_is_charged() {
        const THREADS: usize = 4;
        let (fixture, charges) = (Fixture::default(), AtomicU64::new(0));
        let start = Barrier::new(THREADS);
        let charge = || decision(charges.fetch_add(1, Ordering::Relaxed));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    for cost in 1..=1_000 {
                        let request = IdempotentRequest { cost, ..REQUEST };
                        let decided = fixture.decide(&request, ClientId::OWN, charge);
                        assert_eq!(decided.unwrap().remaining, cost - 1, "all get the same");
                    }
                });
            }
        });
        assert_eq!(charges.into_inner(), 1_000);
    }

    #[test]
    fn an_id_has_at_most_256_bytes() {
        assert!(IdempotencyKey::new(&"x".repeat(IDEMPOTENCY_KEY_BYTES_MAX)).is_ok());
        for bytes in [0, IDEMPOTENCY_KEY_BYTES_MAX + 1] {
            let error = InvalidIdempotencyKey { bytes };
            assert_eq!(IdempotencyKey::new(&"x".repeat(bytes)), Err(error));
        }
    }
}
