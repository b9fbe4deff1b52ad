//! The compile errors of `#[limit]`. `TRYBUILD=overwrite` rewrites the messages.

#[test]
fn each_compile_error_has_its_position_and_a_correction() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
