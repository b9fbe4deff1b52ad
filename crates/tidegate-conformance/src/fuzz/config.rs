//! Fuzz target: any text as a configuration.

use tidegate_server::config::read;

const ERRORS_BYTES_MAX: usize = 200_000;

/// Checks that parsing never panics, and that every error has a position in the text.
///
/// # Panics
///
/// If a check fails.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match read(text, "fuzz.toml") {
        Ok(config) => assert!(config.limits.iter().all(|limit| !limit.name.is_empty())),
        Err(errors) => {
            assert!(!errors.errors.is_empty(), "an error without an error");
            let lines = text.split('\n').count();
            assert!(errors.errors.iter().all(|error| error.line <= lines), "a line too far");
            assert!(errors.to_string().len() < ERRORS_BYTES_MAX, "errors must be short");
        }
    }
}
