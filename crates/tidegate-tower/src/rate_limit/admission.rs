//! The result of asking the limits of a layer about a request.

use super::checks::NoKey;
use super::decisions::JointDecision;
use super::settlement::Settlement;
use std::pin::Pin;
use tidegate::Clock;
use tidegate_http::PreparedFields;

pub(super) enum Admission<C: Clock> {
    Admitted(AfterAdmission<C>),
    Rejected(Rejection),
    /// The request waits for its turn, for a key or for Redis.
    Pending(PendingAdmission<C>),
}

pub(super) type PendingAdmission<C> = Pin<Box<dyn Future<Output = Admission<C>> + Send>>;

/// What is left to do when there is a response.
pub(super) struct AfterAdmission<C: Clock> {
    /// With the rules and the numbers at the time of the decision.
    pub(super) fields: PreparedFields,
    pub(super) settlement: Option<Settlement<C>>,
}

pub(super) enum Rejection {
    Denied(JointDecision),
    NoKey(NoKey),
}
