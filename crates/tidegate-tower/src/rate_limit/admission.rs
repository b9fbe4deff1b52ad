//! What became of a request before the service was asked.

use super::settlement::Settlement;
use crate::key::MissingKey;
use smallvec::SmallVec;
use std::pin::Pin;
use tidegate::{Clock, Decision};
use tidegate_http::PreparedFields;

/// What the limits of a layer have made of a request.
pub(super) enum Admission<C: Clock> {
    Admitted(AfterAdmission<C>),
    Rejected(Rejection),
    Pending(Pin<Box<dyn Future<Output = Admission<C>> + Send>>),
}

/// What is left to do when there is a response.
pub(super) struct AfterAdmission<C: Clock> {
    /// With the rule and the numbers as they were when it was decided.
    pub(super) fields: PreparedFields,
    pub(super) settlement: Option<Settlement<C>>,
}

pub(super) struct Rejection {
    pub(super) decisions: Decisions,
    pub(super) why: RejectReason,
}

/// RejectReason a request goes no further.
pub(super) enum RejectReason {
    /// The limits together say so.
    Denied(Decision),
    /// A limit has nobody to count.
    NoKey { limit: usize, missing: MissingKey },
}

/// The decision of each limit that was asked, by its index in the layer.
pub(super) type Decisions = SmallVec<[(usize, Decision); 1]>;

impl<C: Clock> Admission<C> {
    /// Nobody counts it.
    pub(super) fn uncounted() -> Self {
        Self::Admitted(AfterAdmission { fields: PreparedFields::default(), settlement: None })
    }

    pub(super) fn refuse(why: RejectReason) -> Self {
        Self::Rejected(Rejection { decisions: Decisions::new(), why })
    }
}
