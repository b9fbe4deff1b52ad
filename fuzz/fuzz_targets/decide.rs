//! Any rule, any times, any costs.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_conformance::fuzz::decide(bytes));
