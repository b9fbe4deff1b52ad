//! Where counters live. The engine knows what is here, and not how it is done.
//!
//! Always   One verb: `decide`. It is atomic for one request, and all-or-nothing for several together.
//!          Every answer may fail ([`StoreError`]): memory never does, a store over a network will.

mod memory;

pub(crate) use memory::THROTTLES_NAME;
pub use memory::{Batched, Counters, Memory, Permit};

use crate::clock::ServerClock;
use crate::config::LimitConfig;
use tidegate::{Decision, Joint, Snapshot, Throttles};

/// A store, of the kinds there are.
#[derive(Debug)]
pub enum Store {
    /// In this process.
    Memory(Memory),
}

/// One request of a store: how much, for whom, of which counters.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Whose counters.
    pub counters: &'a Counters,
    /// Whom they count. Any bytes.
    pub key: Key<'a>,
    /// How much.
    pub cost: u64,
}

/// A key as it came over a wire: any bytes, and the same bytes are the same key on every wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a>(pub &'a [u8]);

/// Why there is no decision.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store did not answer.
    #[error("the store did not answer: {reason}")]
    Unavailable {
        /// What is known about it.
        reason: String,
    },
    /// Places under concurrency limits are held by too many.
    #[error(
        "{max} places are held, and there is room to remember no more: release some, or give the rule a lease"
    )]
    TooManyLeases {
        /// How many there can be.
        max: usize,
    },
}

impl std::hash::Hash for Key<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        // The whole key is one run of bytes, so nothing has to say where it ends.
        state.write(self.0);
    }
}

impl Store {
    /// Counters in this process.
    pub fn memory(clock: ServerClock, throttle_max_keys: usize, restored: &Snapshot) -> Self {
        Self::Memory(Memory::new(clock, throttle_max_keys, restored))
    }

    /// Keys whose rate comes with each request.
    pub fn throttles(&self) -> &Throttles<ServerClock> {
        match self {
            Self::Memory(memory) => memory.throttles(),
        }
    }

    /// Counters for a limit; what a snapshot knows of it comes back.
    pub fn open(&self, limit: &LimitConfig, restored: &Snapshot) -> Counters {
        match self {
            Self::Memory(memory) => memory.open(limit, restored),
        }
    }

    /// Decides one request.
    #[expect(clippy::unused_async, reason = "stores over a network answer later")]
    pub async fn decide(&self, ask: &Ask<'_>) -> Result<Decision, StoreError> {
        match self {
            Self::Memory(_) => Ok(ask.counters.check(ask.key, ask.cost)),
        }
    }

    /// Decides several requests as one: all are charged, or none.
    #[expect(clippy::unused_async, reason = "stores over a network answer later")]
    pub async fn decide_all(&self, asks: &[Ask<'_>]) -> Result<Joint, StoreError> {
        match self {
            Self::Memory(_) => Ok(memory::check_all(asks)),
        }
    }

    /// What [`decide`](Self::decide) would say, without charging.
    #[expect(clippy::unused_async, reason = "stores over a network answer later")]
    pub async fn peek(&self, ask: &Ask<'_>) -> Result<Decision, StoreError> {
        match self {
            Self::Memory(_) => Ok(ask.counters.peek(ask.key, ask.cost)),
        }
    }

    /// Forgets a key.
    #[expect(clippy::unused_async, reason = "stores over a network answer later")]
    pub async fn reset(&self, counters: &Counters, key: Key<'_>) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => counters.reset(key),
        }
        Ok(())
    }

    /// Gives back what was charged.
    #[expect(clippy::unused_async, reason = "stores over a network answer later")]
    pub async fn refund(&self, ask: &Ask<'_>) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => ask.counters.refund(ask.key, ask.cost),
        }
        Ok(())
    }

    /// Takes a place under a concurrency limit, or says why not.
    #[expect(clippy::unused_async, reason = "stores over a network answer later")]
    pub async fn acquire(&self, ask: &Ask<'_>) -> Result<Result<Permit, Decision>, StoreError> {
        match self {
            Self::Memory(_) => Ok(ask.counters.acquire(ask.key, ask.cost)),
        }
    }
}
