//! Why a limit counts a request or does not, as text.

use crate::config::{LimitConfig, OnError};
use crate::matching::{KeyFault, Look, NoValue};
use std::fmt::Display;

/// Returns why a limit counts a request, or why it does not.
pub(super) fn why(limit: &LimitConfig, look: &Look<'_>) -> String {
    match look {
        Look::Counts { contradictory: None, .. } => why_counted(limit),
        Look::Counts { contradictory: Some(fault), .. } => {
            format!("{}; {fault}, so it is counted on the shared key", why_counted(limit))
        }
        Look::Off => "its mode is off".to_owned(),
        Look::ForEnvoy => "it counts only requests of Envoy".to_owned(),
        Look::InFlight => {
            "it counts requests in flight, through /v1/acquire and /v1/release".to_owned()
        }
        Look::Unless(condition) => format!("it counts only if {condition}"),
        Look::Keyless(fault) => format!("{fault}, and {}passes uncounted", subject(fault)),
        Look::Refuses(fault) => format!("{fault}, and {}is refused", subject(fault)),
    }
}

/// Returns that the store does not answer, and what decides instead.
pub(super) fn without_store(on_error: OnError, error: &dyn Display) -> String {
    let instead = match on_error {
        OnError::Local => "on_error = \"local\": this server decides with its share of the limit",
        OnError::Allow => "on_error = \"allow\": requests pass",
        OnError::Deny => "on_error = \"deny\": requests are denied",
    };
    format!("the store does not answer ({error}); {instead}")
}

/// Returns the subject of the clause that follows a fault, unless the fault names the request itself.
fn subject(fault: &KeyFault<'_>) -> &'static str {
    if fault.why == NoValue::Absent { "" } else { "the request " }
}

fn why_counted(limit: &LimitConfig) -> String {
    if limit.when.is_empty() {
        return "it counts every request".to_owned();
    }
    let conditions: Vec<String> = limit.when.iter().map(ToString::to_string).collect();
    conditions.join(", ")
}
