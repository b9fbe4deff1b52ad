//! Any text as a configuration.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_conformance::fuzz::config(bytes));
