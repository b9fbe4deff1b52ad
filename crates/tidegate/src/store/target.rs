//! The state that a request is decided on: a gate, or one key of a store.

use crate::clock::Clock;
use crate::slot::{Admission, DecisionContext, Slot};
use crate::store::gate::GateInner;
use crate::store::memory::{MemoryStore, Placement};
use crate::store::{Fingerprint, KeyName};
use crate::sync::Arc;
use crate::sync::wake::WakeList;
use tidegate_core::{Decision, Limit, Span, Timestamp, Verdict, Window};

pub(crate) enum Target<C: Clock> {
    Gate(Arc<GateInner<C>>),
    /// With the name of the key if busy keys are tracked.
    Key(Arc<MemoryStore<C>>, Fingerprint, KeyName),
    /// The overflow state, shared by keys that do not fit into a full table.
    Overflow(Arc<MemoryStore<C>>),
}

impl<C: Clock> Target<C> {
    /// Returns the target without the name of the key, for a refund or a release, which is not tracked.
    pub(crate) fn without_key_name(&self) -> Self {
        match self {
            Self::Gate(inner) => Self::Gate(Arc::clone(inner)),
            Self::Key(store, key, _) => Self::Key(Arc::clone(store), *key, KeyName::default()),
            Self::Overflow(store) => Self::Overflow(Arc::clone(store)),
        }
    }

    /// Returns the name of the key; empty if busy keys are not tracked.
    pub(crate) fn name(&self) -> &KeyName {
        const NONE: &KeyName = &KeyName::NONE;
        match self {
            Self::Key(_, _, name) => name,
            Self::Gate(_) | Self::Overflow(_) => NONE,
        }
    }

    pub(crate) fn clock(&self) -> &C {
        match self {
            Self::Gate(inner) => &inner.clock,
            Self::Key(store, ..) | Self::Overflow(store) => &store.clock,
        }
    }

    /// Advances the queue to the current time, and returns that time.
    pub(crate) fn catch_up(&self) -> Timestamp {
        self.look(|slot, context| {
            slot.catch_up(context);
            context.now
        })
    }

    /// Calls a function with the slot, under its lock. Waiters are woken after the lock is released.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Slot, &mut DecisionContext<'_>) -> R) -> R {
        let mut wakes = WakeList::default();
        match self {
            Self::Gate(inner) => {
                let work = in_context(&mut wakes, work);
                inner.with(|state, now| work(&mut state.slot, &state.limit, now))
            }
            Self::Key(store, key, _) => store.with(*key, in_context(&mut wakes, work)).0,
            Self::Overflow(store) => store.with_overflow(in_context(&mut wakes, work)),
        }
    }

    /// Calls a function with the slot, unless the key is absent: then it has nothing to refund or reset.
    fn with_existing(&self, work: impl FnOnce(&mut Slot, &mut DecisionContext<'_>)) {
        let mut wakes = WakeList::default();
        match self {
            Self::Gate(_) | Self::Overflow(_) => self.with(work),
            Self::Key(store, key, _) => {
                store.with_existing(*key, in_context(&mut wakes, work));
            }
        }
    }

    /// Calls a function with the slot without changing it. A key that is not stored stays absent.
    pub(crate) fn look<R>(&self, work: impl FnOnce(&mut Slot, &mut DecisionContext<'_>) -> R) -> R {
        let mut wakes = WakeList::default();
        match self {
            Self::Gate(_) | Self::Overflow(_) => self.with(work),
            Self::Key(store, key, _) => store.look(*key, in_context(&mut wakes, work)),
        }
    }

    pub(crate) fn check(&self, cost: u64, max_wait: Span) -> Decision {
        let demand = (cost, max_wait);
        let mut wakes = WakeList::default();
        let work =
            |slot: &mut Slot, context: &mut DecisionContext<'_>| slot.check_within(context, demand);
        match self {
            Self::Key(store, key, name) => {
                let work = in_context(&mut wakes, work);
                store.request((*key, name), |decision| decision.verdict, work).0
            }
            Self::Gate(_) | Self::Overflow(_) => self.with(work),
        }
    }

    pub(crate) fn peek(&self, cost: u64, max_wait: Span) -> Decision {
        let demand = (cost, max_wait);
        self.look(|slot, context| slot.peek_within(context, demand))
    }

    pub(crate) fn refund(&self, cost: u64) {
        let created_at = self.created_at();
        self.with_existing(|slot, context| slot.refund(context, cost, created_at));
    }

    pub(crate) fn reset(&self) {
        let created_at = self.created_at();
        self.with_existing(|slot, context| slot.reset(context, created_at));
    }

    fn created_at(&self) -> Timestamp {
        match self {
            Self::Gate(inner) => inner.created_at,
            Self::Key(store, ..) | Self::Overflow(store) => store.created_at,
        }
    }

    pub(crate) fn window(&self) -> Option<Window> {
        self.look(|slot, context| context.limit.window(&slot.state, context.now))
    }

    /// Reserves a turn at a known time. A concurrency limit has none, except now.
    pub(crate) fn reserve(&mut self, cost: u64, max_wait: Span) -> Admission {
        self.admit_and_pin(Admission::verdict, |slot, context| {
            let max_wait = if context.limit.is_concurrency() { Span::ZERO } else { max_wait };
            slot.admit(context, cost, max_wait)
        })
    }

    /// Requests admission. Also returns `max_wait`, which a `concurrency` rule with its own `wait` may shorten.
    pub(crate) fn admit(&mut self, cost: u64, max_wait: Span) -> (Admission, Span) {
        let verdict = |(admission, _): &(Admission, Span)| admission.verdict();
        self.admit_and_pin(verdict, |slot, context| {
            let max_wait = context.limit.permit_wait().map_or(max_wait, |wait| wait.min(max_wait));
            (slot.admit(context, cost, max_wait), max_wait)
        })
    }

    /// Requests admission. If it was decided in the overflow state, this target becomes that state, so that a refund or a
    /// release goes there too, even if the key is stored by then.
    fn admit_and_pin<R>(
        &mut self,
        verdict: impl FnOnce(&R) -> Verdict,
        work: impl FnOnce(&mut Slot, &mut DecisionContext<'_>) -> R,
    ) -> R {
        let Self::Key(store, key, name) = self else { return self.with(work) };
        let mut wakes = WakeList::default();
        let work = in_context(&mut wakes, work);
        let (admission, placement) = store.request((*key, name), verdict, work);
        if placement == Placement::Overflow {
            *self = Self::Overflow(Arc::clone(store));
        }
        admission
    }
}

/// Converts a function that a target calls to one that a store calls.
fn in_context<R>(
    wakes: &mut WakeList,
    work: impl FnOnce(&mut Slot, &mut DecisionContext<'_>) -> R,
) -> impl FnOnce(&mut Slot, &Limit, Timestamp) -> R {
    move |slot, limit, now| work(slot, &mut DecisionContext::new(limit, now, wakes))
}

impl<C: Clock> Clone for Target<C> {
    fn clone(&self) -> Self {
        match self {
            Self::Key(store, key, name) => Self::Key(Arc::clone(store), *key, name.clone()),
            Self::Gate(_) | Self::Overflow(_) => self.without_key_name(),
        }
    }
}
