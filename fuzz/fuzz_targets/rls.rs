//! Any bytes as a rate limit request.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_conformance::fuzz::rls(bytes));
