//! Layers that limit requests by load: by what a service, or the machine, can handle.
//!
//! Always   An admitted request is passed to the service; a rejected one gets a response, never an error.
//! Always   A permit is released once: when the response has ended as far as the layer counts it, when the service fails or
//!          panics, or when the request is given up at any point (T13).

mod layer;
mod rejection;
mod service;

pub use layer::LoadLayer;
pub(crate) use layer::{Answered, Enter};
pub use service::{LoadFuture, LoadService};

use std::fmt;
use tidegate::Decision;
use tidegate::load::Priority;

/// Decides by load whether a request is admitted: a [`Shedder`](tidegate::load::Shedder) or an
/// [`AdaptiveGate`](tidegate::load::AdaptiveGate).
pub trait Load: fmt::Debug + Clone + Send + Sync + 'static {
    /// The permit of an admitted request.
    type Permit;
    /// Why a request is rejected.
    type Refusal: fmt::Display;
    /// The future of the decision.
    type Entering: Future<Output = Result<Self::Permit, Self::Refusal>> + Unpin;

    /// The default name of its layers.
    #[doc(hidden)]
    const NAME: &'static str;

    /// Returns what events contain.
    #[doc(hidden)]
    fn decision(entered: Result<&Self::Permit, &Self::Refusal>) -> (Decision, Option<Priority>);
}
