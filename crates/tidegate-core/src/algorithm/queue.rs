//! Leaky bucket as a queue: requests leave evenly spaced, and a request that comes too early waits (A6).
//!
//! State    One instant, `free_at`: when the next request may leave, in ticks of 1/n µs.
//! Always   Requests leave in the order in which they came, and a request leaves cost/rate after the one before it, with that
//!          one's cost. At most `capacity` requests wait behind the one that leaves, and none waits longer than `wait`.
//! Rounding Waits up, so no request leaves early.
//! Bound    At most `1 + ⌊L · rate⌋` requests of cost 1 leave in any interval of length L.
//! Spec     `spec/queue.md`.

use super::{Algorithm, Usage};
use crate::codec::lua::exact_f64_addend;
use crate::codec::packed::PackedWords;
use crate::codec::snapshot::{join_words, split_words};
use crate::decision::{Decision, Retry, Verdict};
use crate::rate::{Rate, Ticks};
use crate::time::{Span, Timestamp};
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    ticks: Ticks,
    /// The largest cost of the request that leaves and of the requests that wait behind it, in units.
    room: u64,
    /// The same in ticks.
    room_ticks: u128,
    /// The longest wait, in ticks; at most `room_ticks`.
    wait_ticks: u128,
    /// The longest backlog without a step back of the clock: `room_ticks`, and the clock skew that is absorbed.
    backlog_max: u128,
    /// How many requests of cost 1 an empty queue admits at once.
    limit: u64,
}

impl Queue {
    pub(crate) fn new(rate: Rate, capacity: u64, wait: Option<Span>) -> Self {
        let ticks = rate.ticks();
        let room = capacity + 1;
        let room_ticks = ticks.of_cost(room);
        let wait_ticks = wait.map_or(room_ticks, |wait| ticks.in_span(wait).min(room_ticks));
        let skew = ticks.in_span(Span::MAX.skew_tolerance()).min(room_ticks);
        let backlog_max = room_ticks + skew;
        let queue = Self { ticks, room, room_ticks, wait_ticks, backlog_max, limit: 0 };
        Self { limit: queue.remaining(0), ..queue }
    }

    /// Returns the time until the next request may leave, in ticks.
    fn backlog(&self, free_at: &mut u128, now: u128) -> u128 {
        let backlog = free_at.saturating_sub(now);
        if backlog > self.backlog_max {
            // The clock went back by more than is absorbed.
            *free_at = now + self.room_ticks;
            return self.room_ticks;
        }
        backlog
    }

    /// Returns how many requests of cost 1 would be admitted now, one after the other.
    fn remaining(&self, backlog: u128) -> u64 {
        if backlog > self.wait_ticks {
            return 0;
        }
        // The last of them waits `wait_ticks` at most. Its own cost comes after that, but within `room_ticks`.
        let after_last = (self.wait_ticks + self.ticks.of_cost(1)).min(self.room_ticks);
        self.ticks.units_floor(after_last - backlog)
    }

    fn answer(&self, verdict: Verdict, backlog: u128) -> Decision {
        Decision {
            verdict,
            limit: self.limit,
            remaining: self.remaining(backlog),
            reset_after: self.ticks.span_ceil(backlog),
        }
    }
}

impl Algorithm for Queue {
    type State = u128;

    fn fresh(&self, _birth: Timestamp) -> u128 {
        0
    }

    fn decide(&self, free_at: &mut u128, now: Timestamp, cost: u64) -> Decision {
        let now = self.ticks.at(now);
        let backlog = self.backlog(free_at, now);
        if cost == 0 {
            return self.answer(Verdict::Allow, backlog);
        }
        if cost > self.room {
            return self.answer(Verdict::Deny(Retry::Never), backlog);
        }
        let after = backlog + self.ticks.of_cost(cost);
        if after > self.room_ticks || backlog > self.wait_ticks {
            let over_room = after.saturating_sub(self.room_ticks);
            let over = over_room.max(backlog.saturating_sub(self.wait_ticks));
            let retry_after = self.ticks.span_ceil(over);
            return self.answer(Verdict::Deny(Retry::After(retry_after)), backlog);
        }
        *free_at = now + after;
        let verdict = match self.ticks.span_ceil(backlog) {
            Span::ZERO => Verdict::Allow,
            wait => Verdict::Wait(wait),
        };
        self.answer(verdict, after)
    }

    fn refund(&self, free_at: &mut u128, now: Timestamp, cost: u64) {
        let now = self.ticks.at(now);
        let backlog = self.backlog(free_at, now);
        *free_at = now + backlog.saturating_sub(self.ticks.of_cost(cost));
    }

    fn usage(&self, free_at: &u128, now: Timestamp) -> Usage {
        let backlog = self.backlog(&mut free_at.clone(), self.ticks.at(now));
        let per_unit = u128::from(self.ticks.per_unit);
        Usage {
            units: self.ticks.units_floor(backlog),
            part: backlog % per_unit,
            parts: per_unit,
            drain: self.ticks.span_ceil(backlog),
        }
    }

    fn adopt(&self, usage: Usage, now: Timestamp) -> u128 {
        let used = usage.in_ticks(self.ticks).min(self.room_ticks);
        // A request of cost 1 is admitted up to this backlog.
        let admitted_up_to = self.wait_ticks.min(self.room_ticks - self.ticks.of_cost(1));
        self.ticks.at(now) + used.min(admitted_up_to + self.ticks.in_span(usage.drain))
    }

    /// Keeps the times of waiting requests, so that the next request waits behind them. A smaller queue has a shorter
    /// backlog.
    fn inherit(&self, old: &Self, free_at: &u128, now: Timestamp) -> u128 {
        let backlog = old.backlog(&mut free_at.clone(), old.ticks.at(now));
        let owed = self.ticks.in_span(old.ticks.span_ceil(backlog));
        self.ticks.at(now) + owed.min(self.room_ticks)
    }

    fn to_words(&self, instant: &u128) -> Vec<u64> {
        split_words(*instant).to_vec()
    }

    fn read_words(&self, words: &[u64]) -> Option<u128> {
        let [high, low] = *words else { return None };
        Some(join_words(high, low))
    }

    fn lua_params(&self) -> Option<Vec<f64>> {
        let [room, wait, backlog_max] = [self.room_ticks, self.wait_ticks, self.backlog_max]
            .map(|ticks| self.ticks.split_parts(ticks));
        let mut numbers = [room?, wait?, backlog_max?].concat();
        numbers.push(exact_f64_addend(self.ticks.per_us)?);
        Some(numbers)
    }

    fn lua_cost(&self, cost: u64) -> Option<Vec<f64>> {
        self.ticks.cost_to_lua(cost)
    }

    fn state_to_lua(&self, free_at: &u128) -> Option<Vec<f64>> {
        self.ticks.instant_to_lua(*free_at)
    }

    fn state_from_lua(&self, numbers: &[f64]) -> Option<u128> {
        self.ticks.instant_from_lua(numbers)
    }

    fn packed_words(&self) -> usize {
        1
    }

    fn pack(&self, free_at: &u128, epoch: Timestamp) -> Option<PackedWords> {
        self.ticks.pack(*free_at, epoch)
    }

    fn unpack(&self, words: &PackedWords, epoch: Timestamp) -> u128 {
        self.ticks.unpack(words, epoch)
    }
}
