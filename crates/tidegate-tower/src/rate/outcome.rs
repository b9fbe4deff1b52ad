//! What became of a request before the service was asked.

use super::settle::Settlement;
use crate::key::Missing;
use smallvec::SmallVec;
use std::pin::Pin;
use tidegate::{Clock, Decision};
use tidegate_http::PreparedFields;

/// What the limits of a layer have made of a request.
pub(super) enum Outcome<C: Clock> {
    Pass(Rest<C>),
    Refuse(Refused),
    Later(Pin<Box<dyn Future<Output = Outcome<C>> + Send>>),
}

/// What is left to do when there is a response.
pub(super) struct Rest<C: Clock> {
    /// With the rule and the numbers as they were when it was decided.
    pub(super) fields: PreparedFields,
    pub(super) settlement: Option<Settlement<C>>,
}

pub(super) struct Refused {
    pub(super) decisions: Decisions,
    pub(super) why: Why,
}

/// Why a request goes no further.
pub(super) enum Why {
    /// The limits together say so.
    Denied(Decision),
    /// A limit has nobody to count.
    NoKey { limit: usize, missing: Missing },
}

/// The decision of each limit that was asked, by its index in the layer.
pub(super) type Decisions = SmallVec<[(usize, Decision); 1]>;

impl<C: Clock> Outcome<C> {
    /// Nobody counts it.
    pub(super) fn uncounted() -> Self {
        Self::Pass(Rest { fields: PreparedFields::default(), settlement: None })
    }

    pub(super) fn refuse(why: Why) -> Self {
        Self::Refuse(Refused { decisions: Decisions::new(), why })
    }
}
