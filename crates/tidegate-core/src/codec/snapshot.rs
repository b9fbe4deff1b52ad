//! Wide numbers as 64-bit words, for states that are written to a snapshot.

/// Splits a wide number into two words, the high one first.
#[expect(clippy::cast_possible_truncation, reason = "the other half is kept too")]
pub(crate) fn split_words(wide: u128) -> [u64; 2] {
    [(wide >> 64) as u64, wide as u64]
}

/// Joins the two words that [`split_words`] made.
pub(crate) fn join_words(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}
