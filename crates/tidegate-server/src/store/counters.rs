//! The counters of one limit, wherever they are.

use super::StoreError;
use super::memory::MemoryCounters;
use super::redis::{self, RedisCounters};
use crate::clock::ServerClock;
use tidegate::store::{PermitRecord, Stats, Top};
use tidegate::{Decision, Limiter, Rule};
use tidegate_redis::RedisPermit;

/// The counters of one limit.
#[derive(Clone, Debug)]
pub enum Counters {
    /// In this process.
    Memory(MemoryCounters),
    /// In Redis.
    Redis(RedisCounters),
}

/// A place under a concurrency limit; given back when it is dropped.
#[derive(Debug)]
#[must_use = "the place is given back when the permit is dropped"]
pub enum Permit {
    /// In this process.
    Memory(tidegate::Permit<ServerClock>),
    /// In Redis, which hears of it in the background. Larger than the other, and rarer than a look at it.
    Redis(Box<RedisPermit>),
}

impl Counters {
    /// Goes on under another rule: nobody is refunded, nobody is locked out.
    pub fn change(&self, rule: Rule) {
        match self {
            Self::Memory(counters) => counters.change(rule),
            Self::Redis(counters) => counters.change(rule),
        }
    }

    /// The rule as it stands: another server may have changed it.
    pub fn rule(&self) -> Rule {
        match self {
            Self::Memory(counters) => counters.rule(),
            Self::Redis(counters) => counters.rule(),
        }
    }

    /// What has been decided by this server.
    pub fn stats(&self) -> Stats {
        match self {
            Self::Memory(counters) => counters.stats(),
            Self::Redis(counters) => counters.stats(),
        }
    }

    /// The keys that ask the most, and those that are denied the most. Nobody in Redis.
    pub fn top(&self, k: usize) -> Top {
        match self {
            Self::Memory(counters) => counters.top(k),
            Self::Redis(_) => Top::default(),
        }
    }

    /// For who saves it: what Redis has, Redis saves.
    pub fn limiter(&self) -> Option<&Limiter<ServerClock>> {
        match self {
            Self::Memory(counters) => Some(counters.limiter()),
            Self::Redis(_) => None,
        }
    }

    /// Those that several servers share.
    pub fn shared(&self) -> Option<&RedisCounters> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(counters) => Some(counters),
        }
    }
}

impl Permit {
    /// What the limit said.
    pub fn decision(&self) -> Decision {
        match self {
            Self::Memory(permit) => permit.decision(),
            Self::Redis(permit) => permit.decision(),
        }
    }

    /// What a snapshot keeps of it; nothing of a place in Redis, which keeps it itself.
    pub(crate) fn record(&self) -> Option<PermitRecord> {
        match self {
            Self::Memory(permit) => permit.record(),
            Self::Redis(_) => None,
        }
    }

    /// Gives it back, and waits until the store has heard of it. `false` if nobody held it any more; an error, if the
    /// store has yet to hear of it.
    pub async fn release(self) -> Result<bool, StoreError> {
        match self {
            Self::Memory(permit) => {
                drop(permit);
                Ok(true)
            }
            Self::Redis(permit) => redis::release(*permit).await,
        }
    }
}
