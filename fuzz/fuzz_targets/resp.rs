//! Any bytes from a Redis client.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_conformance::fuzz::resp(bytes));
