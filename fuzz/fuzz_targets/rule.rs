//! Any bytes as a rule.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_conformance::fuzz::rule(bytes));
