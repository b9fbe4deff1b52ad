//! Explains which limits decide a request, under which keys, and why.
//!
//! The configuration alone shows which limits match a request. Their decisions depend on earlier requests, which only an
//! engine knows: it reads [`limits_to_peek`](Explanation::limits_to_peek), adds the decision of each, and calls
//! [`conclude`](Explanation::conclude).
//!
//! Always   An explanation matches limits with the code that decides ([`matching`](crate::matching)), and charges no key.
//!          Keys are shown with escapes, so that no key can send control sequences to a terminal, and without credentials.

mod descriptor;
mod explanation;
mod limit;
mod reason;
mod request;
mod text;

pub use descriptor::{DescriptorExplanation, Entry};
pub use explanation::Explanation;
pub use limit::{KeyState, KeyToPeek, LimitExplanation, VerdictKind};
pub use request::{HeaderValues, RequestDescription, proxy_hint};
