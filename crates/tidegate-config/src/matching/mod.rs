//! Which limits count a request or a descriptor, and under which key.
//!
//! Always   Matching charges no key: `explain` and the decision use the same code.

mod counted;
mod descriptors;

pub use crate::request::*;
pub use counted::{KeyFault, KeyMissing, Look, counts_credentials, look};
pub use descriptors::{DescriptorMatch, Descriptors, MatchedEntry, descriptor_key};
