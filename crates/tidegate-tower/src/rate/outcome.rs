//! What became of a request before the service was asked.

use super::settle::Settlement;
use super::shared::Shared;
use crate::answer::{Answer, Said};
use crate::key::Missing;
use std::pin::Pin;
use std::sync::Arc;
use tidegate::{Clock, Decision};

/// What the limits of a layer have made of a request.
pub(super) enum Outcome<C: Clock> {
    Pass(Passed<C>),
    Refuse(Refused),
    Later(Pin<Box<dyn Future<Output = Outcome<C>> + Send>>),
}

/// What is left to do when there is a response.
pub(super) enum Passed<C: Clock> {
    /// The caller is told the quick way. That owns nothing, so there is nothing to be dropped.
    Told(Said),
    // In a box, so that who is told the quick way has less to carry. Without one there is nothing left to do; a variant for that
    // would need another word.
    Later(Option<Box<Rest<C>>>),
}

impl<C: Clock> Passed<C> {
    pub(super) const NOTHING: Self = Self::Later(None);
}

/// What is told, and what is charged or given back.
pub(super) struct Rest<C: Clock> {
    pub(super) shared: Arc<Shared<C>>,
    pub(super) answers: Answers,
    /// The quick way to say it, as the rule was when it was decided.
    pub(super) said: Option<Said>,
    pub(super) settlement: Option<Settlement<C>>,
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
        Self::Pass(Passed::NOTHING)
    }

    pub(super) fn refuse(why: Why) -> Self {
        Self::Refuse(Refused { answers: Answers::None, why })
    }
}
