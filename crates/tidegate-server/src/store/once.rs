//! Requests that may be sent twice, in this process: what was said to them the first time.
//!
//! Always   One lock from the look whether it was asked before until the answer is kept: of two that come together, one is
//!          charged, and both are told the same. What Redis does for a shared limit, in one script (`driver/one.lua`).
//!          Only what was charged is kept. Who was denied is decided about anew.
//!          What costs nothing is not kept either: it would take room for nothing.
//! Always   At most [`ONCES_MAX`] are kept, each for [`ONCE_SPAN`], and of each peer its [share](Shares). One more is refused and not charged: to forget another
//!          instead would charge that one twice.
//! Memory   A fingerprint and a decision, some 160 bytes each, whatever keys and ids are: 42 MB at the most, and given back
//!          when fewer are kept. Nothing before the first.

use super::{Key, StoreError};
use crate::clock::ServerClock;
use crate::shares::{PeerId, Shares};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use tidegate::{Clock, Decision, Timestamp};
use tidegate_redis::ONCE_SPAN;

/// So many answers are kept: 26 000 requests with an id a second.
pub(super) const ONCES_MAX: usize = 1 << 18;

/// So many are forgotten at a time: each request brings one at the most, and nobody is to wait for a quarter of a million.
const FORGOTTEN_MAX: usize = 64;

/// For so many, no room is given back.
const ROOM_KEPT: usize = 1 << 10;

/// An id is no longer than this.
pub const ID_BYTES_MAX: usize = 256;

/// What a client calls a request that it may send twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId<'a>(&'a str);

/// A text that is no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id has 1 to {ID_BYTES_MAX} bytes, this one has {bytes}")]
pub struct NoRequestId {
    /// How many it has.
    pub bytes: usize,
}

/// All that tells a request from others.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Request<'a> {
    pub(super) limit: &'a str,
    pub(super) key: Key<'a>,
    pub(super) cost: u64,
    pub(super) id: RequestId<'a>,
}

#[derive(Debug)]
pub(super) struct Onces {
    kept: Mutex<Kept>,
    secret: RandomState,
    shares: Shares,
}

impl Default for Onces {
    fn default() -> Self {
        let shares = Shares::new(ONCES_MAX);
        Self { kept: Mutex::default(), secret: RandomState::default(), shares }
    }
}

#[derive(Debug, Default)]
struct Kept {
    /// And until when.
    answers: HashMap<u128, (Timestamp, Decision)>,
    /// In the order that they were kept in, which is that of their ends: time does not go back under a lock. And for whom.
    ends: VecDeque<(Timestamp, u128, PeerId)>,
}

impl<'a> RequestId<'a> {
    /// This text as an id.
    pub fn new(text: &'a str) -> Result<Self, NoRequestId> {
        if (1..=ID_BYTES_MAX).contains(&text.len()) {
            return Ok(Self(text));
        }
        Err(NoRequestId { bytes: text.len() })
    }

    /// As it was written.
    pub fn as_str(self) -> &'a str {
        self.0
    }
}

impl Onces {
    /// What was said to this request, or what `decide` says now.
    pub(super) fn decide(
        &self,
        (request, peer): (&Request<'_>, PeerId),
        clock: &ServerClock,
        decide: impl FnOnce() -> Decision,
    ) -> Result<Decision, StoreError> {
        let fingerprint = self.fingerprint(request);
        // What is there is whole, also if somebody has panicked over it.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock.now();
        kept.forget(now, &self.shares);
        if let Some((ends, said)) = kept.answers.get(&fingerprint)
            && now < *ends
        {
            return Ok(*said);
        }
        if !self.shares.take(peer) {
            return Err(StoreError::TooManyIds { max: ONCES_MAX });
        }
        let decision = decide();
        if decision.is_deny() || request.cost == 0 {
            self.shares.give_back(peer);
            return Ok(decision);
        }
        let ends = now + ONCE_SPAN;
        kept.answers.insert(fingerprint, (ends, decision));
        kept.ends.push_back((ends, fingerprint, peer));
        Ok(decision)
    }

    /// Nobody can find another request with the same one: the secret is drawn when the process starts.
    fn fingerprint(&self, request: &Request<'_>) -> u128 {
        // With its length: a key's bytes are hashed as they are, and the next field must not pass for a part of them.
        let length = request.key.0.len();
        let half = |which: u8| u128::from(self.secret.hash_one((which, length, request)));
        half(0) << 64 | half(1)
    }
}

impl Kept {
    fn forget(&mut self, now: Timestamp, shares: &Shares) {
        for _ in 0..FORGOTTEN_MAX {
            let over = self.ends.front().filter(|(ends, ..)| *ends <= now);
            let Some(&(ends, fingerprint, peer)) = over else { break };
            self.ends.pop_front();
            shares.give_back(peer);
            // It may have been asked again since, and be kept for longer.
            if self.answers.get(&fingerprint).is_some_and(|(kept, _)| *kept == ends) {
                self.answers.remove(&fingerprint);
            }
        }
        // Seldom: not before most of what there was room for has gone.
        let room = 2 * self.answers.len().max(ROOM_KEPT);
        if self.answers.capacity() / 4 > room {
            self.answers.shrink_to(room);
            self.ends.shrink_to(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tidegate::{ManualClock, Retry, Span, Verdict};

    const REQUEST: Request<'_> =
        Request { limit: "api", key: Key(b"alice"), cost: 1, id: RequestId("7") };

    fn clock() -> (ManualClock, ServerClock) {
        let clock = ManualClock::new();
        (clock.clone(), ServerClock::Manual(clock))
    }

    /// An answer that can be told from others.
    fn answer(remaining: u64) -> Decision {
        let mut decision = Decision::UNLIMITED;
        decision.remaining = remaining;
        decision
    }

    #[test]
    fn who_asks_again_is_told_the_same_until_it_is_forgotten() {
        let (manual, clock) = clock();
        let onces = Onces::default();
        let ask = |remaining| {
            onces.decide((&REQUEST, PeerId::OWN), &clock, || answer(remaining)).unwrap()
        };
        assert_eq!(ask(9).remaining, 9);
        manual.advance(ONCE_SPAN.saturating_sub(Span::from_micros(1)));
        assert_eq!(ask(8).remaining, 9);
        manual.advance(Span::from_micros(1));
        assert_eq!(ask(7).remaining, 7);
        assert_eq!(onces.kept.lock().unwrap().ends.len(), 1);
    }

    #[test]
    fn another_limit_key_cost_or_id_is_another_request() {
        let (_, clock) = clock();
        let onces = Onces::default();
        let others = [
            REQUEST,
            Request { limit: "apia", key: Key(b"lice"), ..REQUEST },
            Request { key: Key(b"alice7"), ..REQUEST },
            Request { cost: 2, ..REQUEST },
            Request { id: RequestId("77"), ..REQUEST },
            // Of these two, what is hashed would be the same bytes, but for the key's length.
            Request { key: Key(b"alice\0"), cost: 1, id: RequestId("x"), ..REQUEST },
            Request { key: Key(b"alice"), cost: 256, id: RequestId("\0x"), ..REQUEST },
        ];
        for (remaining, request) in (0..).zip(&others) {
            let said = onces.decide((request, PeerId::OWN), &clock, || answer(remaining)).unwrap();
            assert_eq!(said.remaining, remaining, "{request:?}");
        }
    }

    #[test]
    fn who_was_denied_is_decided_about_anew() {
        let (_, clock) = clock();
        let onces = Onces::default();
        let mut denied = answer(0);
        denied.verdict = Verdict::Deny(Retry::Never);
        assert!(onces.decide((&REQUEST, PeerId::OWN), &clock, || denied).unwrap().is_deny());
        assert!(onces.decide((&REQUEST, PeerId::OWN), &clock, || answer(1)).unwrap().is_allow());
    }

    #[test]
    fn so_many_are_kept_and_one_more_is_refused_and_not_charged() {
        let (manual, clock) = clock();
        let onces = Onces::default();
        // Each from a peer of its own, so that all there is can be taken.
        let decide = |cost: u64, answer: &dyn Fn() -> Decision| {
            let peer = PeerId(cost.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            onces.decide((&Request { cost, ..REQUEST }, peer), &clock, answer)
        };
        let all = 1..=2 * ONCES_MAX as u64;
        let kept = all.take_while(|cost| decide(*cost, &|| answer(*cost)).is_ok()).count();
        // Where that many peers have something, the counters that they share say no a little early.
        assert!((ONCES_MAX - ONCES_MAX / 1_000..=ONCES_MAX).contains(&kept), "{kept}");
        let max = kept as u64;
        let refused = decide(max + 1, &|| panic!("it is not decided"));
        assert!(matches!(refused, Err(StoreError::TooManyIds { max: ONCES_MAX })));
        assert_eq!(decide(1, &|| answer(7)).unwrap().remaining, 1, "it is kept");
        manual.advance(ONCE_SPAN);
        assert_eq!(decide(max, &|| answer(7)).unwrap().remaining, 7, "anew");
        // Little by little, and not what was asked anew.
        for cost in 1..max / 32 {
            decide(max + cost, &|| answer(0)).expect("there is room again");
        }
        assert_eq!(decide(max, &|| answer(8)).unwrap().remaining, 7, "it is kept");
        manual.advance(ONCE_SPAN);
        for _ in 0..max / 32 {
            decide(1, &|| answer(0)).expect("there is room");
        }
        let kept = onces.kept.lock().unwrap();
        assert_eq!((kept.answers.len(), kept.ends.len()), (1, 1));
        let room = kept.answers.capacity().max(kept.ends.capacity());
        assert!(room <= 8 * ROOM_KEPT, "there is still room for {room}");
    }

    #[test]
    fn one_peer_that_asks_with_ever_new_ids_leaves_room_for_others() {
        let (_, clock) = clock();
        let onces = Onces::default();
        let of = |peer| move |cost: &u64| (Request { cost: *cost, ..REQUEST }, PeerId(peer));
        let flood = (1..=ONCES_MAX as u64).map(|cost| of(1)(&cost));
        let kept = flood.take_while(|(request, peer)| {
            onces.decide((request, *peer), &clock, || answer(0)).is_ok()
        });
        assert_eq!(kept.count(), 3 * ONCES_MAX / 4);
        let (request, peer) = of(2)(&u64::MAX);
        onces.decide((&request, peer), &clock, || answer(0)).expect("another peer has room");
    }

    #[test]
    fn what_costs_nothing_is_not_kept() {
        let (_, clock) = clock();
        let onces = Onces::default();
        let look = Request { cost: 0, ..REQUEST };
        assert_eq!(onces.decide((&look, PeerId::OWN), &clock, || answer(1)).unwrap().remaining, 1);
        assert_eq!(onces.decide((&look, PeerId::OWN), &clock, || answer(2)).unwrap().remaining, 2);
    }

    #[test]
    fn of_those_that_come_together_one_is_charged() {
        const THREADS: usize = 4;
        let (_, clock) = clock();
        let (onces, charges) = (Onces::default(), AtomicU64::new(0));
        let start = Barrier::new(THREADS);
        let charge = || answer(charges.fetch_add(1, Ordering::Relaxed));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    for cost in 1..=1_000 {
                        let said = onces.decide(
                            (&Request { cost, ..REQUEST }, PeerId::OWN),
                            &clock,
                            charge,
                        );
                        assert_eq!(said.unwrap().remaining, cost - 1, "all are told the same");
                    }
                });
            }
        });
        assert_eq!(charges.into_inner(), 1_000);
    }

    #[test]
    fn an_id_has_256_bytes_and_not_one_more() {
        assert!(RequestId::new(&"x".repeat(ID_BYTES_MAX)).is_ok());
        for bytes in [0, ID_BYTES_MAX + 1] {
            assert_eq!(RequestId::new(&"x".repeat(bytes)), Err(NoRequestId { bytes }));
        }
    }
}
