//! Guava's `SmoothBursty`: saves up to `burst` while idle, and grants on credit — the next caller
//! pays (A9).
//!
//! State    What is saved, when the next caller may pass, and when we last looked, all exact.
//! Always   A request is never refused and never split: it waits for those before it, then passes
//!          whole. Its own cost is charged to whoever comes next.
//! Rounding Waits up. Guava drops the fraction of a microsecond of every charge, so that at 3/s it
//!          runs ahead by a second in three million; with us the fraction stays in the account.
//! Bound    In any interval of length L: `burst + ⌊L · rate⌋` plus the cost of the last one (credit).
//! Spec     `spec/smooth.md`.

use super::{Algorithm, Usage, Words, halves, joined};
use crate::decision::{Decision, Verdict};
use crate::rate::{Rate, Ticks, share_floor};
use crate::time::{Span, Timestamp};
use crate::twin::{exact, exact_half, whole};
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Smooth {
    ticks: Ticks,
    /// What may be saved: `burst`, or one second's worth, which need not be whole units.
    saved_max: u128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    saved: u128,
    /// When the next request may pass.
    free_at: u128,
    /// The last time we looked: an earlier `now` means that the clock went back.
    seen: Timestamp,
}

impl Smooth {
    pub(crate) fn new(rate: Rate, burst: Option<u64>) -> Self {
        let ticks = rate.ticks();
        let second = ticks.in_span(Span::from_secs(1));
        Self { ticks, saved_max: burst.map_or(second, |burst| ticks.of_cost(burst)) }
    }

    /// Brings the account to `now` and says what time that is: time that nobody used is saved. After
    /// a step back of the clock that can be ridden out, time stands still until it has caught up.
    fn sync(&self, account: &mut Account, now: Timestamp) -> Timestamp {
        let step = self.ticks.in_span(account.seen.since(now));
        let owed = account.free_at.saturating_sub(self.ticks.at(account.seen));
        if step > self.saved_max.saturating_add(owed) {
            // Too long to be ridden out: what is owed goes along, and is paid in the same time.
            account.free_at = account.free_at.saturating_sub(step);
            account.seen = now;
        }
        let now = account.seen.max(now);
        account.seen = now;
        let now_ticks = self.ticks.at(now);
        if now_ticks > account.free_at {
            let saved = account.saved.saturating_add(now_ticks - account.free_at);
            account.saved = saved.min(self.saved_max);
            account.free_at = now_ticks;
        }
        now
    }

    /// How many pass at once: what is saved, and one that the next caller pays.
    fn with_credit(&self, saved: u128) -> u64 {
        self.ticks.units_floor(saved).saturating_add(1)
    }

    fn answer(&self, verdict: Verdict, account: &Account, now: Timestamp) -> Decision {
        let owed = account.free_at - self.ticks.at(now);
        Decision {
            verdict,
            limit: self.with_credit(self.saved_max),
            remaining: if owed == 0 { self.with_credit(account.saved) } else { 0 },
            reset_after: self.ticks.span_ceil(owed.saturating_add(self.saved_max - account.saved)),
        }
    }
}

impl Algorithm for Smooth {
    type State = Account;

    fn fresh(&self, birth: Timestamp) -> Account {
        Account { saved: 0, free_at: self.ticks.at(birth), seen: birth }
    }

    fn decide(&self, account: &mut Account, now: Timestamp, cost: u64) -> Decision {
        let now = self.sync(account, now);
        if cost == 0 {
            return self.answer(Verdict::Allow, account, now);
        }
        let wait = self.ticks.span_ceil(account.free_at - self.ticks.at(now));
        let price = self.ticks.of_cost(cost);
        let from_saved = price.min(account.saved);
        account.saved -= from_saved;
        account.free_at = account.free_at.saturating_add(price - from_saved);
        let verdict = if wait.is_zero() { Verdict::Allow } else { Verdict::Wait(wait) };
        self.answer(verdict, account, now)
    }

    fn refund(&self, account: &mut Account, now: Timestamp, cost: u64) {
        let now = self.sync(account, now);
        let refund = self.ticks.of_cost(cost);
        let from_owed = refund.min(account.free_at - self.ticks.at(now));
        account.free_at -= from_owed;
        account.saved = account.saved.saturating_add(refund - from_owed).min(self.saved_max);
    }

    fn usage(&self, account: &Account, now: Timestamp) -> Usage {
        let mut account = *account;
        let now = self.sync(&mut account, now);
        let owed = account.free_at - self.ticks.at(now);
        let used = owed.saturating_add(self.saved_max - account.saved);
        let per_unit = u128::from(self.ticks.per_unit);
        Usage {
            units: self.ticks.units_floor(used),
            part: used % per_unit,
            parts: per_unit,
            drain: self.ticks.span_ceil(used),
        }
    }

    fn adopt(&self, usage: Usage, now: Timestamp) -> Account {
        let used = usage.in_ticks(self.ticks);
        let from_saved = used.min(self.saved_max);
        let owed = (used - from_saved).min(self.ticks.in_span(usage.drain));
        Account {
            saved: self.saved_max - from_saved,
            free_at: self.ticks.at(now) + owed,
            seen: now,
        }
    }

    /// Guava's `setRate`: what is saved scales with what may be saved, what is owed stays owed.
    fn inherit(&self, old: &Self, account: &Account, now: Timestamp) -> Account {
        let mut account = *account;
        let now = old.sync(&mut account, now);
        let owed = old.ticks.span_ceil(account.free_at - old.ticks.at(now));
        Account {
            saved: share_floor(self.saved_max, account.saved, old.saved_max),
            free_at: self.ticks.at(now).saturating_add(self.ticks.in_span(owed)),
            seen: now,
        }
    }

    fn write(&self, account: &Account) -> Vec<u64> {
        let [saved, free_at] = [account.saved, account.free_at].map(halves);
        [saved[0], saved[1], free_at[0], free_at[1], account.seen.as_micros()].to_vec()
    }

    fn read(&self, words: &[u64]) -> Option<Account> {
        let [saved_high, saved_low, free_high, free_low, seen] = *words else { return None };
        let seen = Timestamp::from_micros(seen);
        // What every account that this limit has made obeys, whatever was written.
        Some(Account {
            saved: joined(saved_high, saved_low).min(self.saved_max),
            free_at: joined(free_high, free_low).max(self.ticks.at(seen)),
            seen,
        })
    }

    fn twin_numbers(&self) -> Option<Vec<f64>> {
        let [us, rest] = self.ticks.split(self.saved_max)?;
        Some([us, rest, exact_half(self.ticks.per_us)?].to_vec())
    }

    fn twin_price(&self, cost: u64) -> Option<Vec<f64>> {
        self.ticks.split(self.ticks.of_cost(cost)).map(|price| price.to_vec())
    }

    fn to_twin(&self, account: &Account) -> Option<Vec<f64>> {
        let saved = self.ticks.split(account.saved)?;
        let free_at = self.ticks.split_instant(account.free_at)?;
        let mut numbers = [saved, free_at].concat();
        numbers.push(exact(account.seen.as_micros())?);
        Some(numbers)
    }

    fn of_twin(&self, numbers: &[f64]) -> Option<Account> {
        let [saved, saved_rest, free_at, free_rest, seen] = *numbers else { return None };
        Some(Account {
            saved: self.ticks.joined(saved, saved_rest)?,
            free_at: self.ticks.joined(free_at, free_rest)?,
            seen: Timestamp::from_micros(whole(seen)?),
        })
    }

    fn words(&self) -> usize {
        2
    }

    /// Who owes has nothing saved, so the two are one number with a sign.
    fn pack(&self, account: &Account, _epoch: Timestamp) -> Option<Words> {
        let owed = account.free_at.checked_sub(self.ticks.at(account.seen))?;
        if owed > 0 && account.saved > 0 {
            return None;
        }
        let balance = i64::try_from(account.saved).ok()? - i64::try_from(owed).ok()?;
        Some([account.seen.as_micros(), balance.cast_unsigned(), 0])
    }

    fn unpack(&self, words: &Words, _epoch: Timestamp) -> Account {
        let (seen, balance) = (Timestamp::from_micros(words[0]), words[1].cast_signed());
        let owed = u128::from(balance.min(0).unsigned_abs());
        Account {
            saved: u128::from(balance.max(0).unsigned_abs()),
            free_at: self.ticks.at(seen) + owed,
            seen,
        }
    }
}
