//! Fuzz target: any rule, any times, any costs.
//!
//! Seeds    `fuzz/seeds/decide` has a sequence for each algorithm: the limit is used up, requests are denied or wait, come
//!          again a microsecond early and in time, are refunded, and the clock is set back. So the fuzzer need not
//!          discover rule texts first. The bytes: the rule's text and a newline; then for each operation the time and
//!          the cost as eight bytes each, little-endian, and one byte for the kind of operation.

use tidegate_core::{Limit, Timestamp, Verdict};

const OPERATION_BYTES: usize = 17;
const OPERATIONS_MAX: usize = 200;

/// Checks that deciding never panics, that no more than the capacity is admitted at one instant, and that a request is
/// admitted after the wait of its denial.
///
/// # Panics
///
/// If a check fails.
pub fn decide(bytes: &[u8]) {
    let Some(newline) = bytes.iter().position(|byte| *byte == b'\n') else { return };
    let (text, operations) = (&bytes[..newline], &bytes[newline + 1..]);
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(limit) = text.parse::<Limit>() else { return };
    let mut now = Timestamp::from_micros(1 << 50);
    let mut state = limit.fresh(now);
    for operation in operations.chunks_exact(OPERATION_BYTES).take(OPERATIONS_MAX) {
        let word = |from: usize| {
            operation[from..].first_chunk().map_or(0, |eight| u64::from_le_bytes(*eight))
        };
        let (time, cost, kind) = (word(0), word(8), operation[16]);
        now = match kind % 4 {
            0 => Timestamp::from_micros(time),
            _ => Timestamp::from_micros(now.as_micros().saturating_add(time % 10_000_000)),
        };
        match kind / 4 % 4 {
            0 => limit.refund(&mut state, now, cost),
            1 => drop(limit.peek(&state, now, cost)),
            _ => {
                let decision = limit.decide(&mut state, now, cost);
                let is_on_credit = limit.delays_requests();
                assert!(cost <= decision.limit || is_on_credit || decision.is_deny());
                if let Some(wait) = decision.retry_after() {
                    let due = now + wait;
                    if due < Timestamp::MAX && due.since(now) == wait {
                        let verdict = limit.peek(&state, due, cost).verdict;
                        assert!(
                            !matches!(verdict, Verdict::Deny(_)),
                            "{limit}: denied after the announced wait"
                        );
                    }
                }
            }
        }
    }
}
