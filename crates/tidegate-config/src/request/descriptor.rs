//! The descriptors of Envoy's requests.

use super::part::names_credential;
use super::pattern::Pattern;
use std::fmt;

/// Maximum number of descriptors of a request.
pub const DESCRIPTORS_MAX: usize = 64;
/// Maximum number of entries of a descriptor.
pub const ENTRIES_MAX: usize = 16;

/// An entry of an Envoy descriptor that a limit counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorPart {
    /// The entry's key.
    pub key: String,
    /// The entry's value, which may contain `*`. `None` matches every value, and each value has a key of its own.
    pub value: Option<Pattern>,
}

impl fmt::Display for DescriptorPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) if names_credential(&self.key) && value.0 != "*" => {
                write!(f, "{}=[redacted]", self.key)
            }
            Some(value) => write!(f, "{}={value}", self.key),
            None => f.write_str(&self.key),
        }
    }
}
