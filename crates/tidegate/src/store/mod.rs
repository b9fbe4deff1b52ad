//! The contract between limits and the stores that hold their state.
//!
//! A store keeps the state of limits: this process's memory ([`Limiter`](crate::Limiter)) or Redis (`tidegate_redis::RedisLimiter`).
//! Programs that serve requests (a tower layer, the daemon, a gateway) use a limit through [`LimitStore`] and do not know which
//! store is behind it.
//!
//! Always   A decision is atomic: one request, or several together, all charged or none. There is no get-then-set.
//! Always   A decision is always made. Where a store over a network does not answer, the limit's own policy decides; the other
//!          methods return a [`StoreError`] then. Memory never fails.
//! Fast     Memory replies at once ([`Reply::ready`]), without an allocation. Only a store that waits for a network boxes a future.

mod audit;
mod error;
mod fingerprint;
pub(crate) mod gate;
mod idempotency;
mod joint;
pub(crate) mod memory;
mod permit_record;
mod reply;
mod shares;
mod stats;
mod target;
mod top_keys;

pub use audit::Audit;
pub use error::StoreError;
pub(crate) use idempotency::IdempotentRequest;
pub use idempotency::{
    IDEMPOTENCY_KEY_BYTES_MAX, IDEMPOTENCY_WINDOW, IdempotencyCache, IdempotencyKey,
    InvalidIdempotencyKey,
};
pub use joint::Joint;
pub use permit_record::PermitRecord;
pub use reply::Reply;
pub use shares::{ClientId, ClientIdentity, Shares};
pub use stats::Stats;
pub use top_keys::{KeyName, Top, TopKey};

pub(crate) use fingerprint::{Fingerprint, Secret};
pub(crate) use target::Target;

use crate::rule::Rule;
use std::any::Any;
use std::fmt;
use tidegate_core::{Decision, Denied, Span, Window};

/// A limit whose state is held by a store.
///
/// Keys are bytes: the same bytes are the same key in every store.
///
/// ```
/// use tidegate::Limiter;
/// use tidegate::store::LimitStore;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let limit: Box<dyn LimitStore> = Box::new(Limiter::new("2/s".parse()?));
/// assert_eq!(limit.check(b"alice", 1).await.remaining, 1);
/// # Ok(())
/// # }
/// ```
pub trait LimitStore: fmt::Debug + Send + Sync + 'static {
    /// Returns the rule in force. In a shared store another process may have changed it.
    fn rule(&self) -> Rule;

    /// Returns whether other processes share the state, so that a reply may take a round trip.
    fn is_shared(&self) -> bool;

    /// Decides one request, and charges its cost unless it is denied.
    fn check<'a>(&'a self, key: &'a [u8], cost: u64) -> Reply<'a, Decision>;

    /// Decides several requests as one: all are charged, or none is. Every request names a limit of the same store as this one;
    /// else the reply is [`StoreError::MixedStores`].
    fn check_all<'a>(
        &'a self,
        requests: &'a [CheckRequest<'a>],
    ) -> Reply<'a, Result<Joint, StoreError>>;

    /// Decides a request that its sender may repeat: an admitted request with the same limit, key, cost and idempotency key is
    /// charged once, and its repetitions get the first decision again. A denied request is decided anew.
    fn check_once<'a>(
        &'a self,
        key: &'a [u8],
        cost: u64,
        id: IdempotencyKey<'a>,
        client: ClientId,
    ) -> Reply<'a, Result<Decision, StoreError>>;

    /// Returns what [`check`](Self::check) would decide, without charging.
    fn peek<'a>(&'a self, key: &'a [u8], cost: u64) -> Reply<'a, Result<Decision, StoreError>>;

    /// Returns what [`check`](Self::check) would decide if a shared store did not answer, without charging.
    fn peek_without_store(&self, key: &[u8], cost: u64) -> Decision;

    /// Gives back `cost` of what was charged to a key, and never more than is charged.
    fn refund<'a>(&'a self, key: &'a [u8], cost: u64) -> Reply<'a, Result<(), StoreError>>;

    /// Charges a cost that has already been spent. Memory charges all of it: the excess becomes debt, which is repaid as the
    /// limit refills ([`Request::charge`](crate::Request::charge)). Redis has no debt and charges at most what remains.
    fn charge<'a>(&'a self, key: &'a [u8], cost: u64) -> Reply<'a, Result<(), StoreError>>;

    /// Starts a [`refund`](Self::refund) without waiting for it, for callers that cannot wait, such as `Drop`. If the store does
    /// not answer, the cost stays charged.
    fn refund_in_background(&self, key: &[u8], cost: u64);

    /// Starts a [`charge`](Self::charge) without waiting for it. If the store does not answer, the cost is not charged.
    fn charge_in_background(&self, key: &[u8], cost: u64);

    /// Clears everything that was charged to a key.
    fn reset<'a>(&'a self, key: &'a [u8]) -> Reply<'a, Result<(), StoreError>>;

    /// Takes a permit, waiting for it at most `max_wait`. Under a `concurrency` rule the request counts as in flight until the
    /// permit is released.
    fn acquire<'a>(
        &'a self,
        key: &'a [u8],
        cost: u64,
        max_wait: Span,
    ) -> Reply<'a, Result<Box<dyn StorePermit>, Denied>>;

    /// Returns the current window of a key, for rules that have windows.
    fn window<'a>(&'a self, key: &'a [u8]) -> Reply<'a, Result<Option<Window>, StoreError>>;

    /// Returns the limit as its own type, for a store to recognise its limits in [`check_all`](Self::check_all).
    fn as_any(&self) -> &dyn Any;
}

/// A permit of a [`LimitStore`], given back when it is dropped.
pub trait StorePermit: fmt::Debug + Send + Sync + 'static {
    /// Returns the decision that admitted its request.
    fn decision(&self) -> Decision;

    /// Returns what a [snapshot](crate::snapshot::Snapshot) keeps of the permit; `None` where the store itself outlives the process.
    fn record(&self) -> Option<PermitRecord>;

    /// Gives the permit back and waits until the store has recorded it. The reply is `false` if the permit had ended before: its
    /// lease ran out or its key was reset.
    fn release(self: Box<Self>) -> Reply<'static, Result<bool, StoreError>>;
}

/// One of several requests that [`LimitStore::check_all`] decides together.
#[derive(Clone, Copy, Debug)]
pub struct CheckRequest<'a> {
    /// The limit.
    pub limit: &'a dyn LimitStore,
    /// The key to charge.
    pub key: &'a [u8],
    /// The cost.
    pub cost: u64,
    /// A request that would have to wait for longer than this is denied.
    pub max_wait: Span,
}
