//! Where a request is decided: at a gate, or at one key of a table.

use crate::clock::Clock;
use crate::gate::Post;
use crate::slot::{Booking, Slot};
use crate::sync::Arc;
use crate::table::{Fingerprint, Home, KeyName, Table};
use crate::turn::Wakes;
use tidegate_core::{Decision, Limit, Span, Timestamp, Verdict, Window};

pub(crate) enum Spot<C: Clock> {
    Gate(Arc<Post<C>>),
    /// With the name of the key, where busy keys are counted.
    Key(Arc<Table<C>>, Fingerprint, KeyName),
    /// What the keys of a table share for which it has no room.
    Shared(Arc<Table<C>>),
}

impl<C: Clock> Spot<C> {
    /// The same spot, to give something back to: that is not counted, so it needs no name.
    pub(crate) fn without_name(&self) -> Self {
        match self {
            Self::Gate(post) => Self::Gate(Arc::clone(post)),
            Self::Key(table, key, _) => Self::Key(Arc::clone(table), *key, KeyName::default()),
            Self::Shared(table) => Self::Shared(Arc::clone(table)),
        }
    }

    /// What the key is called; empty where busy keys are not counted.
    pub(crate) fn name(&self) -> &KeyName {
        const NONE: &KeyName = &KeyName::NONE;
        match self {
            Self::Key(_, _, name) => name,
            Self::Gate(_) | Self::Shared(_) => NONE,
        }
    }

    pub(crate) fn clock(&self) -> &C {
        match self {
            Self::Gate(post) => &post.clock,
            Self::Key(table, ..) | Self::Shared(table) => &table.clock,
        }
    }

    /// Brings the line to now, and says when that is.
    pub(crate) fn catch_up(&self) -> Timestamp {
        self.look(|slot, limit, now, wakes| {
            slot.catch_up(limit, now, wakes);
            now
        })
    }

    /// Works on the slot under its owner's lock. Who is to be woken is woken after.
    pub(crate) fn with<R>(
        &self,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp, &mut Wakes) -> R,
    ) -> R {
        let mut wakes = Wakes::default();
        match self {
            Self::Gate(post) => {
                post.with(|slow, now| work(&mut slow.slot, &slow.limit, now, &mut wakes))
            }
            Self::Key(table, key, _) => {
                table.with(*key, |slot, limit, now| work(slot, limit, now, &mut wakes)).0
            }
            Self::Shared(table) => {
                table.with_shared(|slot, limit, now| work(slot, limit, now, &mut wakes))
            }
        }
    }

    /// Works on the slot if there is anything to work on: what a key has that nobody knows cannot be
    /// given back.
    fn with_known(&self, work: impl FnOnce(&mut Slot, &Limit, Timestamp, &mut Wakes)) {
        let mut wakes = Wakes::default();
        match self {
            Self::Gate(_) | Self::Shared(_) => self.with(work),
            Self::Key(table, key, _) => {
                table.with_known(*key, |slot, limit, now| work(slot, limit, now, &mut wakes));
            }
        }
    }

    /// The same, for looking only: a key that is not known is not remembered for it.
    pub(crate) fn look<R>(
        &self,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp, &mut Wakes) -> R,
    ) -> R {
        let mut wakes = Wakes::default();
        match self {
            Self::Gate(_) | Self::Shared(_) => self.with(work),
            Self::Key(table, key, _) => {
                table.look(*key, |slot, limit, now| work(slot, limit, now, &mut wakes))
            }
        }
    }

    pub(crate) fn check(&self, cost: u64, patience: Span) -> Decision {
        let ask = (cost, patience);
        let mut wakes = Wakes::default();
        let mut work =
            |slot: &mut Slot, limit: &Limit, now| slot.check_within(limit, now, ask, &mut wakes);
        match self {
            Self::Key(table, key, name) => {
                table.ask((*key, name), |decision| decision.verdict, work).0
            }
            Self::Gate(_) | Self::Shared(_) => {
                self.with(|slot, limit, now, _| work(slot, limit, now))
            }
        }
    }

    pub(crate) fn peek(&self, cost: u64, patience: Span) -> Decision {
        let ask = (cost, patience);
        self.look(|slot, limit, now, wakes| slot.peek_within(limit, now, ask, wakes))
    }

    pub(crate) fn refund(&self, cost: u64) {
        let birth = self.birth();
        self.with_known(|slot, limit, now, wakes| slot.refund(limit, now, cost, birth, wakes));
    }

    pub(crate) fn reset(&self) {
        let birth = self.birth();
        self.with_known(|slot, limit, now, wakes| slot.reset(limit, now, birth, wakes));
    }

    fn birth(&self) -> Timestamp {
        match self {
            Self::Gate(post) => post.birth,
            Self::Key(table, ..) | Self::Shared(table) => table.birth,
        }
    }

    pub(crate) fn window(&self) -> Option<Window> {
        self.look(|slot, limit, now, _| limit.window(&slot.state, now))
    }

    /// Asks for a turn at a known time, which a concurrency limit has only now.
    pub(crate) fn book_turn(&mut self, cost: u64, patience: Span) -> Booking {
        self.book_at_home(Booking::verdict, |slot, limit, now, wakes| {
            let patience = if limit.is_concurrency() { Span::ZERO } else { patience };
            slot.book(limit, now, cost, patience, wakes)
        })
    }

    /// Asks for admission with patience; tells how much of it there is, which a concurrency rule may
    /// cut short.
    pub(crate) fn book(&mut self, cost: u64, patience: Span) -> (Booking, Span) {
        let verdict = |(booking, _): &(Booking, Span)| booking.verdict();
        self.book_at_home(verdict, |slot, limit, now, wakes| {
            let patience = limit.permit_wait().map_or(patience, |wait| wait.min(patience));
            (slot.book(limit, now, cost, patience, wakes), patience)
        })
    }

    /// Books, and stays where it was booked: what was booked in the overflow is given back there, also
    /// when there is room for the key by then.
    fn book_at_home<R>(
        &mut self,
        verdict: impl FnOnce(&R) -> Verdict,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp, &mut Wakes) -> R,
    ) -> R {
        let Self::Key(table, key, name) = self else { return self.with(work) };
        let mut wakes = Wakes::default();
        let work = |slot: &mut Slot, limit: &Limit, now| work(slot, limit, now, &mut wakes);
        let (booking, home) = table.ask((*key, name), verdict, work);
        if home == Home::Shared {
            *self = Self::Shared(Arc::clone(table));
        }
        booking
    }
}

impl<C: Clock> Clone for Spot<C> {
    fn clone(&self) -> Self {
        match self {
            Self::Key(table, key, name) => Self::Key(Arc::clone(table), *key, name.clone()),
            Self::Gate(_) | Self::Shared(_) => self.without_name(),
        }
    }
}

/// The time by which this limit counts.
pub(crate) fn now<C: Clock>(clock: &C, limit: &Limit) -> Timestamp {
    if limit.follows_calendar() { clock.calendar_now() } else { clock.now() }
}

/// Gates and tables are numbered, so that several of them are always locked in the same order.
pub(crate) fn next_number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    // Zero is nobody's.
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
