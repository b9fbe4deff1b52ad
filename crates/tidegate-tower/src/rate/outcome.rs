//! What became of a request before the service was asked.

use super::settle::Settlement;
use super::shared::Telling;
use crate::answer::Answer;
use crate::key::Missing;
use std::pin::Pin;
use tidegate::{Clock, Decision};

/// What the limits of a layer have made of a request.
pub(super) enum Outcome<C: Clock> {
    Pass(Passed<C>),
    Refuse(Refused),
    Later(Pin<Box<dyn Future<Output = Outcome<C>> + Send>>),
}

pub(super) struct Passed<C: Clock> {
    pub(super) telling: Telling<C>,
    pub(super) settlement: Option<Box<Settlement<C>>>,
}

pub(super) struct Refused {
    pub(super) answers: Answers,
    pub(super) why: Why,
}

/// Why a request goes no further.
pub(super) enum Why {
    /// The limits together say so.
    Denied(Decision),
    /// A limit has nobody to count.
    NoKey { limit: usize, missing: Missing },
}

/// What each limit that was asked has to say, by its place.
#[derive(Debug)]
pub(super) enum Answers {
    /// Nothing was asked.
    None,
    /// The layer has one limit.
    One(Answer),
    Several(Vec<(usize, Answer)>),
}

impl<C: Clock> Outcome<C> {
    /// Nobody counts it.
    pub(super) fn uncounted() -> Self {
        Self::Pass(Passed { telling: Telling::NOTHING, settlement: None })
    }

    pub(super) fn refuse(why: Why) -> Self {
        Self::Refuse(Refused { answers: Answers::None, why })
    }
}
