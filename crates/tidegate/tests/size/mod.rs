//! How large tests are: small enough for every day, or with `TIDEGATE_FULL=1` as the catalogue asks.

/// One of the two, by what is asked for.
pub(crate) fn size<T>(every_day: T, full: T) -> T {
    if is_full() { full } else { every_day }
}

pub(crate) fn is_full() -> bool {
    std::env::var_os("TIDEGATE_FULL").is_some_and(|value| value == "1")
}
