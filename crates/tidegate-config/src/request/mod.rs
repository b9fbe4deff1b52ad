//! An HTTP request as limits see it: the parts that keys and conditions are made of.
//!
//! Always   Reading a request charges no key. `explain` and the decision read it with the same code.

mod ambiguity;
mod condition;
mod descriptor;
mod http_request;
pub(crate) mod key;
mod part;
mod path;
mod pattern;
mod url;
mod values;

pub use condition::Condition;
pub use descriptor::{DESCRIPTORS_MAX, DescriptorPart, ENTRIES_MAX};
pub use http_request::{NoValue, Request};
pub use part::{KeyPart, PartError, V4_BITS, V6_BITS, names_credential};
pub use path::Path;
pub use pattern::Pattern;
pub use tidegate_http::{ForwardingHeaders, client_ip};
pub use url::{EscapedSlash, decode_form, without_port};
