//! Any rule, any times, any costs: no panic, no more than the capacity at one instant, and a wait
//! that is told is true.
//!
//! Seeds    `fuzz/seeds/decide`: one of each algorithm that is used up, denied or made to wait, asked
//!          again a microsecond early and in time, refunded, and set back, so that a search need not
//!          find the texts of rules first. In bytes: the text; for each operation a 1, the time and the
//!          cost in eight bytes, lowest first, and what to do; a 0; the length of the text, in one byte,
//!          or in two if all that is longer than 256.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::{Limit, Timestamp, Verdict};

fuzz_target!(|input: (&str, Vec<(u64, u64, u8)>)| {
    let (text, operations) = input;
    let Ok(limit) = text.parse::<Limit>() else { return };
    let mut now = Timestamp::from_micros(1 << 50);
    let mut state = limit.fresh(now);
    for (time, cost, what) in operations.into_iter().take(200) {
        now = match what % 4 {
            0 => Timestamp::from_micros(time),
            _ => Timestamp::from_micros(now.as_micros().saturating_add(time % 10_000_000)),
        };
        match what / 4 % 4 {
            0 => limit.refund(&mut state, now, cost),
            1 => drop(limit.peek(&state, now, cost)),
            _ => {
                let decision = limit.decide(&mut state, now, cost);
                let on_credit = limit.is_waiting();
                assert!(cost <= decision.limit || on_credit || decision.is_deny());
                if let Some(wait) = decision.retry_after() {
                    let due = now + wait;
                    if due < Timestamp::MAX && due.since(now) == wait {
                        let verdict = limit.peek(&state, due, cost).verdict;
                        assert!(!matches!(verdict, Verdict::Deny(_)), "{limit}: a broken promise");
                    }
                }
            }
        }
    }
});
