//! Sliding window log: never more than `count` in any window, because every admission stays in the log until it is a
//! window old (A3).
//!
//! State    The admissions of the last window, oldest first, each with its time and cost. Admissions of the same
//!          microsecond share an entry with the sum of their costs (seed flaw 2).
//! Always   The costs add up to at most `count`. A denied request is not in the log (seed flaw 3).
//! Memory   16 bytes per entry, at most `count` entries per key, and `count` is at most [`COUNT_MAX`].
//! Bound    `count` in any half-open interval of length W, exactly.
//! Spec     `spec/sliding_log.md`.

use super::{Algorithm, Usage};
use crate::codec::lua::{exact_f64, exact_f64_addend, exact_u64};
use crate::decision::{Decision, Retry, Verdict};
use crate::rate::Rate;
use crate::time::{Span, Timestamp};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The largest count of a log, which takes 16 MB per key in the worst case.
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
    /// The sum of the costs of all entries.
    total: u64,
}

impl SlidingLog {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate }
    }

    fn has_expired(&self, entry: Entry, now: Timestamp) -> bool {
        // The half-open window (now − W, now] counts.
        entry.at <= now && now.since(entry.at) >= self.rate.period
    }

    fn remove_expired(&self, log: &mut Log, now: Timestamp) {
        while let Some(entry) = log.entries.front().copied() {
            if !self.has_expired(entry, now) {
                break;
            }
            log.entries.pop_front();
            log.total -= entry.cost;
        }
    }

    /// Returns the latest time of an entry. It is later than `now` only during clock skew; after a longer step back of the
    /// clock, entries with a later time count as admitted now.
    fn latest(&self, log: &Log, now: Timestamp) -> Timestamp {
        let last = log.entries.back().map_or(now, |entry| entry.at);
        if last.since(now) > self.rate.period.skew_tolerance() { now } else { last.max(now) }
    }

    /// Moves later entries to the [`latest`](Self::latest) time, and returns that time.
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

    /// Returns the time until enough entries have expired for `cost` to fit.
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

    /// Returns how long an entry with this time still counts.
    fn left(&self, at: Timestamp, now: Timestamp) -> Span {
        (self.rate.period + at.since(now)).saturating_sub(now.since(at))
    }

    /// Returns the decision about `cost` if the costs of the entries that count add up to `total`. The caller logs an admitted
    /// request at `latest`.
    fn judge(
        &self,
        log: &Log,
        (now, latest): (Timestamp, Timestamp),
        total: u64,
        cost: u64,
    ) -> Decision {
        let (count, free) = (self.rate.count, self.rate.count.saturating_sub(total));
        if cost > 0 && cost <= free {
            let reset_after = self.left(latest, now);
            let (verdict, remaining) = (Verdict::Allow, free - cost);
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
        Decision { verdict, limit: count, remaining: free, reset_after }
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
        self.remove_expired(log, now);
        let decision = self.judge(log, (now, latest), log.total, cost);
        if decision.is_allow() {
            log.push(latest, cost);
        }
        decision
    }

    /// Decides without a copy of the log, which may be long.
    fn peek(&self, log: &Log, now: Timestamp, cost: u64) -> Decision {
        let expired = log.entries.iter().take_while(|entry| self.has_expired(**entry, now));
        let total = log.total - expired.map(|entry| entry.cost).sum::<u64>();
        self.judge(log, (now, self.latest(log, now)), total, cost)
    }

    fn refund(&self, log: &mut Log, now: Timestamp, cost: u64) {
        self.repair(log, now);
        self.remove_expired(log, now);
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

    /// Writes a row for each entry: its time, and the sum of the costs up to it.
    fn state_to_lua(&self, log: &Log) -> Option<Vec<f64>> {
        let mut sum = 0;
        let row = |entry: &Entry| {
            sum += entry.cost;
            Some([exact_f64(entry.at.as_micros())?, exact_f64(sum)?])
        };
        Some(log.entries.iter().map(row).collect::<Option<Vec<_>>>()?.concat())
    }

    /// Reads the script's summary: the total cost with the time of the last entry, and the cost that must expire before the
    /// denied request fits, with the time of the last entry of it.
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

    /// Keeps the log if the period stays the same, even if it exceeds a lowered count.
    fn inherit(&self, old: &Self, log: &Log, now: Timestamp) -> Log {
        if self.rate.period == old.rate.period {
            return log.clone();
        }
        self.adopt(old.usage(log, now), now)
    }

    fn adopt(&self, usage: Usage, now: Timestamp) -> Log {
        let mut log = Log::default();
        // One entry of such an age that it expires when the usage of the old rule would have drained.
        let age = self.rate.period.saturating_sub(usage.drain);
        let mut used = usage.units_ceil().min(self.rate.count);
        if used == self.rate.count && age > now.since(Timestamp::EPOCH) {
            // The entry would be before the epoch. It expires too late, so one unit must be free now.
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
    fn admissions_of_the_same_microsecond_share_an_entry() {
        let rate = Rate { count: 1_000, period: Span::from_secs(1) };
        let (log, now) = (&mut Log::default(), Timestamp::from_micros(5));
        for _ in 0..1_000 {
            let _ = SlidingLog::new(rate).decide(log, now, 1);
        }
        assert_eq!((log.entries.len(), log.total), (1, 1_000));
    }
}
