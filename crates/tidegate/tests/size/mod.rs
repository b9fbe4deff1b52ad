//! The size of tests: small for every day, or the full size of the catalogue with `TIDEGATE_FULL=1`.

/// Returns the size for this run.
pub(crate) fn size<T>(every_day: T, full: T) -> T {
    if is_full() { full } else { every_day }
}

pub(crate) fn is_full() -> bool {
    std::env::var_os("TIDEGATE_FULL").is_some_and(|value| value == "1")
}
