//! A request as limits see it: which of them count it, and under which key.
//!
//! Always   Looking consumes nothing: `explain` and the deciding wires go the same way.

mod ambiguity;
mod condition;
mod counted;
mod descriptors;
mod key;
mod part;
mod path;
mod pattern;
mod url;
mod values;

pub use counted::{KeyFault, KeyMissing, Look, NoValue, look};
pub use descriptors::{Chosen, DESCRIPTORS_MAX, Descriptors, ENTRIES_MAX, Trail, descriptor_key};
pub use part::{PartError, V4_BITS, V6_BITS, counts_credentials, names_credential};
pub use path::{EscapedSlash, Path};
pub use url::{decode_form, without_port};

use ipnet::IpNet;
use path::PathPattern;
use std::net::IpAddr;
pub use tidegate_http::{ForwardingHeaders, client_ip};

/// What is known of a request. A wire fills in what it has.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// Who asks, proxies taken into account.
    pub ip: Option<IpAddr>,
    /// The method, in capitals.
    pub method: Option<&'a str>,
    /// The host, without port.
    pub host: Option<&'a str>,
    /// The path, without query.
    pub path: Option<Path<'a>>,
    /// What follows the `?`.
    pub query: Option<&'a str>,
    /// Names in small letters, values as they came.
    pub headers: Vec<(&'a str, &'a [u8])>,
}

/// A part of the key that a limit counts by: `ip`, `header:x-api-key`, `path`…
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// The address; IPv6 by its first 64 bits unless told otherwise.
    Ip {
        /// How many bits of an IPv4 address.
        v4_bits: u8,
        /// How many bits of an IPv6 address.
        v6_bits: u8,
    },
    /// A header, by its name in small letters.
    Header(String),
    /// A cookie.
    Cookie(String),
    /// The path.
    Path,
    /// A parameter of the query.
    Query(String),
    /// The method.
    Method,
    /// The host.
    Host,
    /// An entry of the Envoy descriptor.
    Descriptor(String),
    /// Always the same.
    Constant(String),
}

/// What must hold for a limit to count a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What is looked at.
    pub part: KeyPart,
    /// One of these must match.
    pub patterns: Vec<Pattern>,
    /// For `path`, the same as they are compared.
    paths: Vec<PathPattern>,
    /// For `ip`, instead of patterns: it must be in one of these.
    pub networks: Vec<IpNet>,
    /// Or none of them.
    pub is_negated: bool,
}

/// A text, or a text with `*` for anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(pub String);

/// An entry of an Envoy descriptor that a limit counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorPart {
    /// The entry's key.
    pub key: String,
    /// Its value, which may have `*` in it; any value, each counted for itself, if there is none.
    pub value: Option<Pattern>,
}
