//! Any text as a configuration: an answer, never a panic; and every error has a place in the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_server::config;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match config::read(text, "fuzz.toml") {
        Ok(config) => assert!(config.limits.iter().all(|limit| !limit.name.is_empty())),
        Err(errors) => {
            assert!(!errors.errors.is_empty(), "an error without an error");
            let lines = text.split('\n').count();
            assert!(errors.errors.iter().all(|error| error.line <= lines), "a line too far");
            assert!(errors.to_string().len() < 200_000, "errors must be short");
        }
    }
});
