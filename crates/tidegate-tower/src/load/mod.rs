//! Layers by load: what a service, or the machine, can bear.
//!
//! Always   Who is let in is called at once; who is not gets a response, never an error.
//! Always   A permit is given back once: when the response is done as far as its layer says, when the service fails or
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

/// What decides by load whether a request may go on: a [`Shedder`](tidegate::load::Shedder) or an
/// [`AdaptiveGate`](tidegate::load::AdaptiveGate).
///
/// ```
/// use tidegate_tower::Load;
///
/// fn say<L: Load>(refusal: &L::Refusal) -> String {
///     refusal.to_string()
/// }
/// # let shed = tidegate::load::Shedder::builder().in_flight_max(0).build();
/// # let shed = shed.try_enter(tidegate::load::Priority::Batch).unwrap_err();
/// # assert!(say::<tidegate::load::Shedder>(&shed).starts_with("batch traffic is shed"));
/// ```
pub trait Load: fmt::Debug + Clone + Send + Sync + 'static {
    /// What a request holds that was let in.
    type Permit;
    /// Why one was not.
    type Refusal: fmt::Display;
    /// The answer, to come.
    type Entering: Future<Output = Result<Self::Permit, Self::Refusal>> + Unpin;

    /// What its layers are called, unless told.
    #[doc(hidden)]
    const NAME: &'static str;

    /// What observers hear of an answer.
    #[doc(hidden)]
    fn decision(entered: Result<&Self::Permit, &Self::Refusal>) -> (Decision, Option<Priority>);
}
