//! What `#[limit]` refuses, and what it says then. `TRYBUILD=overwrite` writes the messages anew.

#[test]
fn a_mistake_is_told_where_it_is_and_what_to_write() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
