//! What the layers share that admit or reject requests.
//!
//! `control` is what each of these layers brings: how it decides, and what it does for an admitted and for a rejected
//! request. `service` asks for the decision; `future` calls the inner service, or responds to the rejected request.

mod control;
mod future;
mod service;

pub(crate) use control::{Admission, AdmissionControl, AfterAdmission};
pub use future::LimitedFuture;
pub use service::LimitedService;
