//! The parts of a request that limits read, and why a part may have no value.

use super::path::Path;
use std::net::IpAddr;

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
