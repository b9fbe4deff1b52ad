//! Fuzz target: any bytes as a rule.

use tidegate_core::ParsedRule;

const ERROR_BYTES_MAX: usize = 1_024;

/// Checks that parsing never panics, and that a parsed rule prints as text that parses to the same rule.
///
/// # Panics
///
/// If a check fails.
pub fn rule(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match text.parse::<ParsedRule>() {
        Ok(rule) => {
            let printed = rule.to_string();
            let again = printed.parse::<ParsedRule>();
            assert_eq!(again.as_ref(), Ok(&rule), "{printed:?} reads differently");
            assert_eq!(again.map(|again| again.to_string()), Ok(printed));
            assert!(!rule.explain().is_empty());
        }
        Err(error) => {
            assert!(text.get(error.span()).is_some(), "the span is not in the text");
            assert!(error.to_string().len() < ERROR_BYTES_MAX, "an error must be short");
        }
    }
}
