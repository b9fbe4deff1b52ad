//! `[limits.<name>]`: what the configuration of a limit contains, and the defaults.

use crate::request::{Condition, DescriptorPart, KeyPart};
use http::StatusCode;
use std::time::Duration;
use tidegate::Rule;
use tidegate::limiter::Overflow;
use tidegate_http::Mode;

/// The name of `CL.THROTTLE` in metrics. No limit may have this name.
pub const THROTTLES_NAME: &str = "CL.THROTTLE";
/// Maximum length of the name of a limit.
pub(super) const NAME_BYTES_MAX: usize = 64;

/// `[limits.<name>]`.
#[derive(Clone, Debug)]
pub struct LimitConfig {
    /// The name of the limit.
    pub name: String,
    /// The rule.
    pub rule: Rule,
    /// Whether the limit is enforced.
    pub mode: Mode,
    /// The parts of the key that it counts by. Empty counts all requests under one key.
    pub key: Vec<KeyPart>,
    /// The conditions under which it counts a request; all must hold.
    pub when: Vec<Condition>,
    /// What happens to a request without a value for the key.
    pub on_missing_key: MissingKey,
    /// Maximum number of keys. Default: the library's.
    pub max_keys: Option<usize>,
    /// What happens to new keys when the key store is full.
    pub overflow: Overflow,
    /// The response to a denied caller in place of the problem body (R3).
    pub fallback: Option<Fallback>,
    /// The Envoy descriptor that it counts.
    pub descriptor: Option<DescriptorConfig>,
    /// What happens to requests while the store does not answer.
    pub on_error: OnError,
    /// Maximum time of a decision. Default: the store's.
    pub deadline: Option<Duration>,
}

/// Which Envoy descriptor a limit counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorConfig {
    /// The domain.
    pub domain: String,
    /// The entries, outermost first.
    pub entries: Vec<DescriptorPart>,
    /// Names of limits that do not count a request that this limit counts.
    pub replaces: Vec<String>,
}

/// What happens to a request without a value for the key that a limit counts by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingKey {
    /// All such requests share one key.
    #[default]
    Shared,
    /// The request passes uncounted.
    Allow,
    /// The request is denied.
    Deny,
}

/// What happens to requests while the store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// This server decides with its share of the limit.
    #[default]
    Local,
    /// Requests pass.
    Allow,
    /// Requests are denied.
    Deny,
}

/// The response to a denied caller in place of the problem body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The HTTP status.
    pub status: u16,
    /// The content type of the body.
    pub content_type: String,
    /// The body.
    pub body: String,
}

impl Fallback {
    /// Returns the status, or `None` if it is below 400: on such a status a proxy would let the request pass, or follow the
    /// redirect.
    pub fn denial_status(&self) -> Option<StatusCode> {
        let status = StatusCode::from_u16(self.status).ok();
        status.filter(|status| status.is_client_error() || status.is_server_error())
    }
}

impl LimitConfig {
    /// Returns a limit with this name and rule, and defaults.
    pub fn new(name: impl Into<String>, rule: Rule) -> Self {
        Self {
            name: name.into(),
            rule,
            mode: Mode::default(),
            key: Vec::new(),
            when: Vec::new(),
            on_missing_key: MissingKey::default(),
            max_keys: None,
            overflow: Overflow::default(),
            fallback: None,
            descriptor: None,
            on_error: OnError::default(),
            deadline: None,
        }
    }
}

/// Returns whether a limit can have this name.
pub fn is_limit_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}
