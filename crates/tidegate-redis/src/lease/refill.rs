//! One request for a lease, which others may wait for.
//!
//! Always   Whatever comes of it, and if it is given up, those who wait are told: also where the key was forgotten
//!          meanwhile, so that nobody else would.

use super::balance::{Grant, Purse, Request};
use super::codec::Terms;
use super::{Heard, Kept, Leases, Lent};
use crate::cache::SentAt;
use crate::connection::StoreError;
use crate::limiter::Inner;
use crate::random;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

/// A request for a lease.
pub(super) struct Errand {
    inner: Arc<Inner>,
    key: Box<[u8]>,
    cost: u64,
    kept: Arc<Kept>,
    request: Request,
    asked: SentAt,
    is_settled: bool,
}

impl Errand {
    pub(super) fn new(
        inner: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        kept: Arc<Kept>,
        request: Request,
        asked: SentAt,
    ) -> Self {
        let (inner, key) = (Arc::clone(inner), key.into());
        Self { inner, key, cost, kept, request, asked, is_settled: false }
    }

    /// Asks Redis, puts what it lends into the purse, and spends the cost of it before anybody else can.
    pub(super) async fn run(mut self) -> Result<Lent, StoreError> {
        let number = random::number() >> 12;
        let (cost, size) = (self.cost, self.request.size);
        let terms = Terms { number, at_least: cost.max(1) };
        let told = match self.inner.exact.lend(&self.key, &terms, &self.request).await {
            Ok(told) => told,
            // A lease is two keys. Until the slot has moved, requests are decided without one.
            Err(error) if error.is_slot_moving() => {
                let now = self.leases().now();
                self.tell(None, Heard::LookAgain).rest(now);
                return Ok(Lent::Quiet);
            }
            Err(error) => {
                drop(self.tell(None, Heard::Failure(error.clone())));
                return Err(error);
            }
        };
        self.leases().lent.fetch_add(told.amount, Ordering::Relaxed);
        // A connection is met before anything is sent by it: who lends and is new is known to be new by now. So it is
        // asked again here, however long it took to be answered, and by whomever.
        if self.leases().is_quiet(&self.inner.exact) {
            drop(self.tell(None, Heard::LookAgain));
            return Ok(Lent::Quiet);
        }
        // The share has admitted meanwhile what this could be spent on: who waited for it was not waited for.
        if self.inner.fallback.is_recovering(&self.key) {
            drop(self.tell(None, Heard::LookAgain));
            return Ok(Lent::Quiet);
        }
        self.inner.fallback.lent(&self.key, told.amount);
        // What was forgotten meanwhile is not spent: it runs out.
        let kept = self.leases().find(&self.key);
        if !kept.is_some_and(|kept| Arc::ptr_eq(&kept, &self.kept)) {
            drop(self.tell(None, Heard::LookAgain));
            return Ok(Lent::Denied(told.decision, told.known));
        }
        let grant =
            (told.amount > 0).then_some(Grant { number, amount: told.amount, lasts: told.lasts });
        let heard = match &told.known {
            Some(known) if told.amount == 0 => Heard::Nothing(known.clone(), self.asked),
            _ => Heard::LookAgain,
        };
        let now = self.leases().now();
        let mut purse = self.tell(grant, heard);
        if told.amount < size {
            purse.learn(told.amount);
        }
        if told.amount == 0 && !told.decision.is_deny() {
            purse.rest(now);
        }
        if purse.spend(now, cost) {
            return Ok(Lent::Spent(purse.left(now)));
        }
        Ok(Lent::Denied(told.decision, told.known))
    }

    /// Puts into the purse what was lent, and tells those who wait. Nobody spends before the purse is let go.
    fn tell(&mut self, grant: Option<Grant>, heard: Heard) -> MutexGuard<'_, Purse> {
        self.is_settled = true;
        let mut purse = self.kept.purse();
        purse.answered(&self.request, grant);
        *self.kept.heard() = heard;
        self.kept.answered.notify_waiters();
        purse
    }

    fn leases(&self) -> &Leases {
        self.inner.leases.as_ref().expect("only leases send somebody")
    }
}

impl Drop for Errand {
    /// Whoever stops waiting leaves a purse in which nobody asks.
    fn drop(&mut self) {
        if !self.is_settled {
            drop(self.tell(None, Heard::LookAgain));
        }
    }
}
