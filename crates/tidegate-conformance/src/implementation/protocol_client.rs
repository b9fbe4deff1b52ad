//! What a server is asked over each of its protocols.

use super::{DecisionResult, PartialDecision, Refusal};
use tidegate::{ManualClock, Span};
use tidegate_server::config::LimitConfig;
use tidegate_server::net::Addresses;

/// A request of Envoy: the domain, and the entries of a descriptor.
pub(super) const DOMAIN: &str = "spec";
pub(super) const LIMIT_ENTRY: &str = "limit";
pub(super) const KEY_ENTRY: &str = "key";

/// A client of a server, over one protocol.
pub trait ProtocolClient: Sized {
    /// Connects to the server, which uses this clock.
    fn connect(addresses: Addresses, clock: &ManualClock) -> Result<Self, Refusal>;

    /// The resolution of the protocol's times.
    fn precision() -> Span;

    /// Receives the responses that became due when the clock was set.
    fn settle(&mut self) -> Result<(), Refusal> {
        Ok(())
    }

    /// Decides.
    fn check(&mut self, limit: &LimitConfig, key: &str, cost: u64) -> DecisionResult;

    /// Decides under several limits at once.
    fn check_all(&mut self, limits: &[LimitConfig], key: &str, cost: u64) -> DecisionResult;

    /// Decides without charging.
    fn peek(&mut self, limit: &LimitConfig, key: &str, cost: u64) -> DecisionResult;

    /// Refunds a charge.
    fn refund(&mut self, limit: &LimitConfig, key: &str, cost: u64) -> Result<(), Refusal>;

    /// Resets the key.
    fn reset(&mut self, limit: &LimitConfig, key: &str) -> Result<(), Refusal>;

    /// Acquires a permit, and returns the lease if the request was admitted.
    fn acquire(
        &mut self,
        limit: &LimitConfig,
        key: &str,
        cost: u64,
    ) -> Result<(PartialDecision, Option<String>), Refusal>;

    /// Releases a permit.
    fn release(&mut self, lease: &str) -> Result<(), Refusal>;
}
