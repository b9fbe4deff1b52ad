//! AIMD: up a little after each round that went well, down by a tenth after an overload (`back_off`).
//!
//! The step up is the square root of the limit. A step of one, as in TCP, takes minutes to return to a limit of hundreds;
//! with a share of the limit, two clients of one service would never converge to equal limits.
//!
//! Spec     `spec/adaptive/aimd.md`.

/// Returns the limit after a round without overload.
pub(super) fn next(limit: u64) -> u64 {
    limit + limit.isqrt().max(1)
}
