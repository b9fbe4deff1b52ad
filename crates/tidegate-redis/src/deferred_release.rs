//! Places that were given back while Redis did not answer: it is told again until it has heard.
//!
//! Always   A place is given back once, however often Redis is told: its ticket and since when it is held name one place
//!          and no other, also where Redis has lost all it knew.
//! Always   It ends: Redis has answered, or the place is over by itself, which takes a lease, or a day without one. Until
//!          then the limiter lives on, also if nobody else has it.
//! Bound    [`PLACES_MAX`] of a limit; one more is left to its lease, and the log says so.

use crate::connection::StoreError;
use crate::limiter::Inner;
use crate::script::stored_value;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tidegate_core::Timestamp;
use tokio::time::{Instant, sleep};

const PLACES_MAX: usize = 1 << 16;
/// Between two times that Redis is told.
const PAUSE: Duration = Duration::from_millis(250);

/// What Redis knows a place by: its ticket, and since when it is held.
pub(crate) type Place = (u64, Timestamp);

/// A limit's places that Redis has not heard of.
#[derive(Debug, Default)]
pub(crate) struct Returns(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    places: Vec<Return>,
    /// How many Redis is being told of.
    in_hand: usize,
    /// Whether somebody tells Redis.
    is_served: bool,
}

#[derive(Debug)]
struct Return {
    key: Vec<u8>,
    place: Place,
    /// When it is over by itself.
    ends: Instant,
}

impl Inner {
    /// Gives a place back; whether it was held. An error, if Redis has not heard of it yet: it will.
    pub(crate) async fn give_back(
        self: &Arc<Self>,
        key: &[u8],
        place: Place,
    ) -> Result<bool, StoreError> {
        let told = self.exact.release(key, place).await;
        if told.is_err() {
            self.give_back_later(key, place);
        }
        told
    }

    fn give_back_later(self: &Arc<Self>, key: &[u8], place: Place) {
        let lasts = self.exact.rule().lease().unwrap_or(stored_value::ORPHANED);
        let ends = Instant::now() + lasts.as_duration();
        match self.returns.put(Return { key: key.to_vec(), place, ends }) {
            Put::Served => {}
            Put::Alone => {
                let inner = Arc::clone(self);
                self.exact.store().runtime.spawn(async move { inner.tell_until_heard().await });
            }
            Put::Full => tracing::warn!(
                limit = self.exact.name(),
                "{PLACES_MAX} places wait for Redis to be given back: one more is left to its lease"
            ),
        }
    }

    async fn tell_until_heard(&self) {
        while !self.returns.is_done() {
            sleep(PAUSE).await;
            for one in self.returns.take() {
                let is_over = Instant::now() >= one.ends;
                let is_heard = is_over
                    || self.exact.is_up(&one.key)
                        && self.exact.release(&one.key, one.place).await.is_ok();
                self.returns.told((!is_heard).then_some(one));
            }
        }
    }
}

/// What became of a place that waits.
#[derive(Debug, PartialEq, Eq)]
enum Put {
    /// Somebody tells Redis.
    Served,
    /// Somebody has to begin.
    Alone,
    /// There are too many.
    Full,
}

impl Returns {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().expect("nobody panics with it")
    }

    fn put(&self, one: Return) -> Put {
        let mut waiting = self.waiting();
        if waiting.places.len() + waiting.in_hand >= PLACES_MAX {
            return Put::Full;
        }
        waiting.places.push(one);
        let is_served = std::mem::replace(&mut waiting.is_served, true);
        if is_served { Put::Served } else { Put::Alone }
    }

    /// Takes all of them, to tell Redis.
    fn take(&self) -> Vec<Return> {
        let mut waiting = self.waiting();
        waiting.in_hand = waiting.places.len();
        std::mem::take(&mut waiting.places)
    }

    /// Redis was told of one of them, and it is here again if that was in vain.
    fn told(&self, again: Option<Return>) {
        let mut waiting = self.waiting();
        waiting.in_hand -= 1;
        waiting.places.extend(again);
    }

    /// Whether none is left. Then nobody tells Redis any more, and who comes next has to begin.
    fn is_done(&self) -> bool {
        let mut waiting = self.waiting();
        waiting.is_served = !waiting.places.is_empty();
        !waiting.is_served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Return {
        Return { key: b"key".to_vec(), place: (1, Timestamp::EPOCH), ends: Instant::now() }
    }

    #[test]
    fn so_many_places_wait_and_no_more() {
        let returns = Returns::default();
        for _ in 0..PLACES_MAX {
            assert_ne!(returns.put(one()), Put::Full);
        }
        assert_eq!(returns.put(one()), Put::Full);
        let taken = returns.take();
        assert_eq!(returns.put(one()), Put::Full, "those that Redis is told of wait too");
        for place in taken.into_iter().skip(1) {
            returns.told(Some(place));
        }
        returns.told(None);
        assert_eq!(returns.put(one()), Put::Served);
        assert_eq!(returns.put(one()), Put::Full);
    }

    #[test]
    fn one_tells_redis_and_who_comes_after_that_begins_again() {
        let returns = Returns::default();
        assert_eq!(returns.put(one()), Put::Alone);
        assert_eq!(returns.put(one()), Put::Served);
        assert!(!returns.is_done());
        for _ in returns.take() {
            returns.told(None);
        }
        assert!(returns.is_done());
        assert_eq!(returns.put(one()), Put::Alone);
    }
}
