//! Which of the engine's limits count a request, and on which keys.

pub use tidegate_config::matching::*;

use crate::engine::{Limit, Limits};
use std::sync::Arc;

/// A limit that counts a request.
#[derive(Clone, Debug)]
pub struct Counted {
    /// The limit.
    pub limit: Arc<Limit>,
    /// The key that it counts the request on.
    pub key: Vec<u8>,
}

/// Returns the limits with a name that count this request, in the order of the configuration.
///
/// # Errors
///
/// If a limit with `on_missing_key = "deny"` finds no key in the request.
pub fn counted(limits: &Limits, request: &Request<'_>) -> Result<Vec<Counted>, KeyMissing> {
    let mut counted = Vec::new();
    for limit in limits.named() {
        match look(limit.config(), request) {
            Look::Counts { key, .. } => counted.push(Counted { limit: Arc::clone(limit), key }),
            Look::Refuses(fault) => return Err(fault.refusal(limit.name())),
            Look::Off | Look::ForEnvoy | Look::InFlight | Look::Unless(_) | Look::Keyless(_) => {}
        }
    }
    Ok(counted)
}
