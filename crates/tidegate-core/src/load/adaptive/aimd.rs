//! AIMD: up a little after each round that went well, down by a tenth after an overload (`back_off`).
//!
//! The step up is the root of the limit. One, as TCP has it, takes minutes to come back to a limit of
//! hundreds; a share of the limit would let two clients of one service never come to equal limits.
//!
//! Spec     `spec/adaptive/aimd.md`.

/// The limit after a round that went well.
pub(super) fn next(limit: u64) -> u64 {
    limit + limit.isqrt().max(1)
}
