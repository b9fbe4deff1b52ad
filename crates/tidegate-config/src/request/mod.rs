//! An HTTP request as limits see it: the parts that keys and conditions are made of.
//!
//! Always   Reading a request charges no key. `explain` and the decision read it with the same code.

mod ambiguity;
mod condition;
pub(crate) mod key;
mod part;
mod path;
mod pattern;
mod url;
mod values;

pub use part::{PartError, V4_BITS, V6_BITS, names_credential};
pub use path::{EscapedSlash, Path};
pub use tidegate_http::{ForwardingHeaders, client_ip};
pub use url::{decode_form, without_port};

use ipnet::IpNet;
use path::PathPattern;
use std::net::IpAddr;

/// Maximum number of descriptors of a request.
pub const DESCRIPTORS_MAX: usize = 64;
/// Maximum number of entries of a descriptor.
pub const ENTRIES_MAX: usize = 16;

/// What is known of a request. Each protocol fills in the fields that it has.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// The address of the client, as trusted proxies report it.
    pub ip: Option<IpAddr>,
    /// The method, in capitals.
    pub method: Option<&'a str>,
    /// The host, without port.
    pub host: Option<&'a str>,
    /// The path, without query.
    pub path: Option<Path<'a>>,
    /// What follows the `?`.
    pub query: Option<&'a str>,
    /// The headers: names in lower case, values as received.
    pub headers: Vec<(&'a str, &'a [u8])>,
}

/// A part of the key that a limit counts by: `ip`, `header:x-api-key`, `path`…
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// The client's address, cut to a prefix. Default: [`V4_BITS`] and [`V6_BITS`].
    Ip {
        /// Length of the prefix of an IPv4 address, in bits.
        v4_bits: u8,
        /// Length of the prefix of an IPv6 address, in bits.
        v6_bits: u8,
    },
    /// A header, by its name in lower case.
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
    /// The same text for every request.
    Constant(String),
}

/// What must hold for a limit to count a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The part of the request that is compared.
    pub part: KeyPart,
    /// The patterns; one of them must match.
    pub patterns: Vec<Pattern>,
    /// The same patterns in canonical form, if the part is `path`.
    paths: Vec<PathPattern>,
    /// If the part is `ip`, the networks instead of patterns; the address must be in one of them.
    pub networks: Vec<IpNet>,
    /// Whether the condition holds if no pattern and no network matches.
    pub is_negated: bool,
}

/// A text in which `*` stands for any run of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(pub String);

/// An entry of an Envoy descriptor that a limit counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorPart {
    /// The entry's key.
    pub key: String,
    /// The entry's value, which may contain `*`. `None` matches every value, and each value has a key of its own.
    pub value: Option<Pattern>,
}

/// Why a request has no value for a part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoValue {
    /// No server finds a value.
    Absent,
    /// The request has more than one.
    Repeated,
    /// Servers differ about what the value is, or whether there is one.
    Ambiguous,
}

impl NoValue {
    /// Returns whether the server behind the proxy may find a value although limits do not.
    pub(crate) fn is_contradictory(self) -> bool {
        self != Self::Absent
    }
}
