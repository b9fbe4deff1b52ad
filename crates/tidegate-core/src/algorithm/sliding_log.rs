//! Sliding window log: never more than `count` in any window, because every admission is
//! logged until it is a window old (A3).
//!
//! State    The admissions of the last window, oldest first: when, and how much. Admissions of the
//!          same microsecond share an entry, with their costs added (seed flaw 2: not lost).
//! Always   Their costs add up to at most `count`; a refused request is not in the log (flaw 3).
//! Memory   16 bytes an entry, at most `count` entries a key, and `count` at most [`COUNT_MAX`].
//! Bound    `count` in any half-open interval of length W, exactly.
//! Spec     `spec/sliding_log.md`.

use super::{Algorithm, Usage};
use crate::codec::lua::{exact_f64, exact_f64_addend, exact_u64};
use crate::decision::{Decision, Retry, Verdict};
use crate::rate::Rate;
use crate::time::{Span, Timestamp};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The largest count a log may have: 16 MB a key in the worst case.
pub(crate) const COUNT_MAX: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct SlidingLog {
    rate: Rate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Timestamp,
    cost: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
    /// The sum of the entries' costs.
    total: u64,
}

impl SlidingLog {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate }
    }

    fn has_expired(&self, entry: Entry, now: Timestamp) -> bool {
        // An entry counts in the half-open window (now − W, now].
        entry.at <= now && now.since(entry.at) >= self.rate.period
    }

    fn forget_expired(&self, log: &mut Log, now: Timestamp) {
        while let Some(entry) = log.entries.front().copied() {
            if !self.has_expired(entry, now) {
                break;
            }
            log.entries.pop_front();
            log.total -= entry.cost;
        }
    }

    /// The latest time an entry counts as of. Entries from after `now` mean that the clock went
    /// back: a tremble of it is ridden out, beyond that they all count as of now.
    fn latest(&self, log: &Log, now: Timestamp) -> Timestamp {
        let last = log.entries.back().map_or(now, |entry| entry.at);
        if last.since(now) > self.rate.period.skew_tolerance() { now } else { last.max(now) }
    }

    /// Moves entries from after [`latest`](Self::latest) to it, and returns it.
    fn repair(&self, log: &mut Log, now: Timestamp) -> Timestamp {
        if log.entries.back().is_none_or(|last| last.at <= now) {
            return now;
        }
        let latest = self.latest(log, now);
        let mut late = 0;
        while let Some(entry) = log.entries.back().copied() {
            if entry.at <= latest {
                break;
            }
            log.entries.pop_back();
            late += entry.cost;
        }
        log.total -= late;
        log.push(latest, late);
        latest
    }

    /// Returns how long until enough of the log has expired for a `cost` that does not fit now.
    fn retry_after(
        &self,
        log: &Log,
        (now, latest): (Timestamp, Timestamp),
        total: u64,
        cost: u64,
    ) -> Span {
        let mut missing = total.saturating_add(cost).saturating_sub(self.rate.count);
        for entry in &log.entries {
            if self.has_expired(*entry, now) {
                continue;
            }
            missing = missing.saturating_sub(entry.cost);
            if missing == 0 {
                return self.left(entry.at.min(latest), now);
            }
        }
        self.rate.period
    }

    /// Returns how long an entry of this time still counts.
    fn left(&self, at: Timestamp, now: Timestamp) -> Span {
        (self.rate.period + at.since(now)).saturating_sub(now.since(at))
    }

    /// Returns the decision about `cost` while entries of `total` count. An admitted cost is logged as of `latest`.
    fn judge(
        &self,
        log: &Log,
        (now, latest): (Timestamp, Timestamp),
        total: u64,
        cost: u64,
    ) -> Decision {
        let (count, room) = (self.rate.count, self.rate.count.saturating_sub(total));
        if cost > 0 && cost <= room {
            let reset_after = self.left(latest, now);
            let (verdict, remaining) = (Verdict::Allow, room - cost);
            return Decision { verdict, limit: count, remaining, reset_after };
        }
        let verdict = if cost > count {
            Verdict::Deny(Retry::Never)
        } else if cost > 0 {
            Verdict::Deny(Retry::After(self.retry_after(log, (now, latest), total, cost)))
        } else {
            Verdict::Allow
        };
        let reset_after = match log.entries.back() {
            Some(last) if total > 0 => self.left(last.at.min(latest), now),
            _ => Span::ZERO,
        };
        Decision { verdict, limit: count, remaining: room, reset_after }
    }
}

impl Log {
    fn push(&mut self, at: Timestamp, cost: u64) {
        if cost == 0 {
            return;
        }
        self.total += cost;
        match self.entries.back_mut() {
            Some(last) if last.at == at => last.cost += cost,
            _ => self.entries.push_back(Entry { at, cost }),
        }
    }
}

impl Algorithm for SlidingLog {
    type State = Log;

    fn fresh(&self, _birth: Timestamp) -> Log {
        Log::default()
    }

    fn decide(&self, log: &mut Log, now: Timestamp, cost: u64) -> Decision {
        let latest = self.repair(log, now);
        self.forget_expired(log, now);
        let decision = self.judge(log, (now, latest), log.total, cost);
        if decision.is_allow() {
            log.push(latest, cost);
        }
        decision
    }

    /// Without copying the log, which may be long.
    fn peek(&self, log: &Log, now: Timestamp, cost: u64) -> Decision {
        let expired = log.entries.iter().take_while(|entry| self.has_expired(**entry, now));
        let total = log.total - expired.map(|entry| entry.cost).sum::<u64>();
        self.judge(log, (now, self.latest(log, now)), total, cost)
    }

    fn refund(&self, log: &mut Log, now: Timestamp, cost: u64) {
        self.repair(log, now);
        self.forget_expired(log, now);
        let mut left = cost.min(log.total);
        log.total -= left;
        while left > 0 {
            let Some(last) = log.entries.back_mut() else { break };
            let taken = left.min(last.cost);
            last.cost -= taken;
            left -= taken;
            if last.cost == 0 {
                log.entries.pop_back();
            }
        }
    }

    fn to_words(&self, log: &Log) -> Vec<u64> {
        log.entries.iter().flat_map(|entry| [entry.at.as_micros(), entry.cost]).collect()
    }

    fn read_words(&self, words: &[u64]) -> Option<Log> {
        let (entries, []) = words.as_chunks::<2>() else { return None };
        let entry = |&[at, cost]: &[u64; 2]| Entry { at: Timestamp::from_micros(at), cost };
        let entries: VecDeque<Entry> = entries.iter().map(entry).collect();
        let total = entries.iter().try_fold(0_u64, |sum, entry| sum.checked_add(entry.cost))?;
        Some(Log { entries, total })
    }

    fn lua_params(&self) -> Option<Vec<f64>> {
        let period = self.rate.period;
        let skew = exact_f64(period.skew_tolerance().as_micros())?;
        Some([exact_f64(self.rate.count)?, exact_f64_addend(period.as_micros())?, skew].to_vec())
    }

    /// Rows of when and how much there has been by then.
    fn state_to_lua(&self, log: &Log) -> Option<Vec<f64>> {
        let mut sum = 0;
        let row = |entry: &Entry| {
            sum += entry.cost;
            Some([exact_f64(entry.at.as_micros())?, exact_f64(sum)?])
        };
        Some(log.entries.iter().map(row).collect::<Option<Vec<_>>>()?.concat())
    }

    /// How much there is and since when, and how much of it goes when the request is admitted.
    fn state_from_lua(&self, numbers: &[f64]) -> Option<Log> {
        let [total, last, missing, missing_at] = *numbers else { return None };
        let (total, missing) = (exact_u64(total)?, exact_u64(missing)?);
        let mut log = Log::default();
        log.push(Timestamp::from_micros(exact_u64(missing_at)?), missing);
        log.push(Timestamp::from_micros(exact_u64(last)?), total.checked_sub(missing)?);
        Some(log)
    }

    fn usage(&self, log: &Log, now: Timestamp) -> Usage {
        let decision = self.peek(log, now, 0);
        Usage::whole(self.rate.count.saturating_sub(decision.remaining), decision.reset_after)
    }

    /// The same window: the same log, also where it stands above a lowered count.
    fn inherit(&self, old: &Self, log: &Log, now: Timestamp) -> Log {
        if self.rate.period == old.rate.period {
            return log.clone();
        }
        self.adopt(old.usage(log, now), now)
    }

    fn adopt(&self, usage: Usage, now: Timestamp) -> Log {
        let mut log = Log::default();
        // As if it all had happened so long ago that it is forgotten when the old rule would have.
        let age = self.rate.period.saturating_sub(usage.drain);
        let mut used = usage.units_ceil().min(self.rate.count);
        if used == self.rate.count && age > now.since(Timestamp::EPOCH) {
            // Before the epoch there was no time: it cannot have been that long ago.
            used -= 1;
        }
        log.push(now - age, used);
        log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_at_the_same_instant_is_one_entry() {
        let rate = Rate { count: 1_000, period: Span::from_secs(1) };
        let (log, now) = (&mut Log::default(), Timestamp::from_micros(5));
        for _ in 0..1_000 {
            let _ = SlidingLog::new(rate).decide(log, now, 1);
        }
        assert_eq!((log.entries.len(), log.total), (1, 1_000));
    }
}
