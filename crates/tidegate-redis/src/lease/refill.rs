//! One request for a lease, for whose reply several requests may wait.
//!
//! Invariant  However it ends, also if it is cancelled or its key was dropped meanwhile, the waiting requests are woken.

use super::balance::{Grant, LeaseBalance, LeaseRequest};
use super::codec::LendTerms;
use super::{LeaseReply, LeasedKey, Leases, VersionedDecision};
use crate::cache::SentAt;
use crate::connection::RedisStoreError;
use crate::random;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use tidegate::Decision;

pub(super) enum RefillResult {
    /// The cost was spent from the lease; this remains.
    Spent(u64),
    /// No lease was granted. The decision may still be an admission.
    Denied(Decision, Option<VersionedDecision>),
    /// A lease may have been granted, but it is left to expire: other leases or the share's admissions may overlap with it.
    NoLease,
}

/// A request for a lease.
pub(super) struct Refill {
    leases: Arc<Leases>,
    key: Box<[u8]>,
    cost: u64,
    leased_key: Arc<LeasedKey>,
    request: LeaseRequest,
    sent: SentAt,
    has_replied: bool,
}

impl Refill {
    pub(super) fn new(
        leases: &Arc<Leases>,
        key: &[u8],
        cost: u64,
        leased_key: Arc<LeasedKey>,
        request: LeaseRequest,
        sent: SentAt,
    ) -> Self {
        let (leases, key) = (Arc::clone(leases), key.into());
        Self { leases, key, cost, leased_key, request, sent, has_replied: false }
    }

    /// Requests the lease, adds it to the balance, and spends the cost before any waiting request can.
    pub(super) async fn run(mut self) -> Result<RefillResult, RedisStoreError> {
        let number = random::number() >> 12;
        let (cost, size) = (self.cost, self.request.size);
        let terms = LendTerms { number, at_least: cost.max(1) };
        let lent = match self.leases.remote.lend(&self.key, &terms, &self.request).await {
            Ok(lent) => lent,
            // Leases need two keys of the slot. Until it has moved, requests are decided without leases.
            Err(error) if error.is_slot_moving() => {
                let now = self.leases.now();
                self.reply(None, LeaseReply::TryAgain).pause(now);
                return Ok(RefillResult::NoLease);
            }
            Err(error) => {
                drop(self.reply(None, LeaseReply::Failed(error.clone())));
                return Err(error);
            }
        };
        self.leases.lent.fetch_add(lent.amount, Ordering::Relaxed);
        // Checked again, since the reply took time. A new primary is identified before it is sent anything, so it is known by
        // now whether this lease comes from one. And the share may have admitted what the lease covers.
        if self.leases.is_cooling_down() || self.leases.fallback.is_recovering(&self.key) {
            drop(self.reply(None, LeaseReply::TryAgain));
            return Ok(RefillResult::NoLease);
        }
        self.leases.fallback.charge_lease(&self.key, lent.amount);
        // If the key was dropped meanwhile, the lease is left to expire.
        let current = self.leases.find(&self.key);
        if !current.is_some_and(|leased| Arc::ptr_eq(&leased, &self.leased_key)) {
            drop(self.reply(None, LeaseReply::TryAgain));
            return Ok(RefillResult::Denied(lent.decision, lent.answer));
        }
        let grant =
            (lent.amount > 0).then_some(Grant { number, amount: lent.amount, lasts: lent.lasts });
        let reply = match &lent.answer {
            Some(answer) if lent.amount == 0 => LeaseReply::NothingLent(answer.clone(), self.sent),
            _ => LeaseReply::TryAgain,
        };
        let now = self.leases.now();
        let mut balance = self.reply(grant, reply);
        if lent.amount < size {
            balance.cap_size(lent.amount);
        }
        if lent.amount == 0 && !lent.decision.is_deny() {
            balance.pause(now);
        }
        if balance.spend(now, cost) {
            return Ok(RefillResult::Spent(balance.remaining(now)));
        }
        Ok(RefillResult::Denied(lent.decision, lent.answer))
    }

    /// Adds the lease to the balance, and wakes the waiting requests. They spend after the returned guard is dropped.
    fn reply(&mut self, grant: Option<Grant>, reply: LeaseReply) -> MutexGuard<'_, LeaseBalance> {
        self.has_replied = true;
        let mut balance = self.leased_key.balance.lock();
        balance.receive(&self.request, grant);
        *self.leased_key.reply.lock() = reply;
        self.leased_key.replied.notify_waiters();
        balance
    }
}

impl Drop for Refill {
    /// Ends a request that was cancelled, so that others can request a lease.
    fn drop(&mut self) {
        if !self.has_replied {
            drop(self.reply(None, LeaseReply::TryAgain));
        }
    }
}
