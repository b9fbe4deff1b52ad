//! States as words, packed for stores and written for snapshots: a restored state equals the original, and a state that does
//! not fit is not packed, rather than rounded.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use tidegate_core::{Limit, Span, State, Timestamp};

/// Every algorithm, with the number of words of its packed states.
const RULES: [(&str, usize); 12] = [
    ("7/min burst 3", 1),
    ("7/min leaky capacity 3", 1),
    ("7/min queue capacity 2", 1),
    ("3/min fixed", 2),
    ("3/min fixed from first", 2),
    ("3/min calendar", 2),
    ("3/min sliding", 2),
    ("3/min sliding-log", 0),
    ("7/min smooth burst 3", 2),
    ("7/min warmup 20s", 3),
    ("concurrency 3 lease 1min", 0),
    ("7r/m burst=2 nodelay", 2),
];

const EPOCH: Timestamp = Timestamp::from_micros(1_704_067_200_000_000);

fn limit(rule: &str) -> Limit {
    rule.parse().unwrap()
}

/// Returns the states of a key after each of several requests, none of them at a round time.
fn states(limit: &Limit) -> Vec<State> {
    let mut state = limit.fresh(EPOCH);
    let mut now = EPOCH;
    let mut states = vec![state.clone()];
    for (pause_us, cost) in [(7, 1), (1_000_003, 1), (9_999_991, 2), (61_000_001, 1), (3, 2)] {
        now = now + Span::from_micros(pause_us);
        let _ = limit.decide(&mut state, now, cost);
        states.push(state.clone());
    }
    states
}

fn shown(state: &State) -> String {
    format!("{state:?}")
}

#[test]
fn a_packed_state_has_the_announced_number_of_words_and_is_restored() {
    for (rule, words) in RULES {
        let limit = limit(rule);
        assert_eq!(limit.packed_words(), words, "{rule}");
        for state in states(&limit) {
            let packed = limit.pack(&state, EPOCH);
            assert_eq!(packed.is_some(), words > 0, "{rule}: {state:?}");
            let Some(packed) = packed else { continue };
            assert!(packed[words..].iter().all(|word| *word == 0), "{rule}: {packed:?}");
            assert_eq!(shown(&limit.unpack(&packed, EPOCH)), shown(&state), "{rule}");
        }
    }
}

#[test]
fn a_written_state_is_restored_and_any_other_number_of_words_is_rejected() {
    for (rule, _) in RULES {
        let limit = limit(rule);
        for state in states(&limit) {
            let mut written = limit.write_state(&state);
            let read = limit.read_state(&written).unwrap();
            assert_eq!(shown(&read), shown(&state), "{rule}");
            written.push(1);
            assert!(limit.read_state(&written).is_none(), "{rule}: one word too many");
        }
    }
}

#[test]
fn a_bucket_is_packed_from_the_first_tick_after_the_epoch_to_the_last_below_the_marker() {
    for rule in ["1/s", "1/s leaky", "1/s queue"] {
        let limit = limit(rule);
        let packed = |full_at: u128| {
            let [high, low] = [full_at >> 64, full_at & u128::from(u64::MAX)];
            let words = [high, low].map(|half| u64::try_from(half).unwrap());
            limit.pack(&limit.read_state(&words).unwrap(), EPOCH)
        };
        let epoch = u128::from(EPOCH.as_micros());
        let top = epoch + u128::from(u64::MAX);
        assert_eq!(packed(0), Some([0; 3]), "{rule}: it has always been full");
        assert_eq!(packed(epoch - 1), None, "{rule}");
        assert_eq!(packed(epoch), None, "{rule}: zero means always full");
        assert_eq!(packed(epoch + 1), Some([1, 0, 0]), "{rule}");
        assert_eq!(packed(top - 1), Some([u64::MAX - 1, 0, 0]), "{rule}");
        assert_eq!(packed(top), None, "{rule}: stores use this word as a marker");
        assert_eq!(packed(top + 1), None, "{rule}");
    }
}

#[test]
fn two_counts_are_packed_up_to_half_a_word_each() {
    let limit = limit("10000000000/s sliding");
    let half = u64::from(u32::MAX);
    let start = EPOCH.as_micros();
    let packed = |previous, current| {
        let state = limit.read_state(&[start, previous, current]).unwrap();
        limit.pack(&state, EPOCH).map(|words| limit.write_state(&limit.unpack(&words, EPOCH)))
    };
    assert_eq!(packed(half, 0), Some(vec![start, half, 0]));
    assert_eq!(packed(0, half), Some(vec![start, 0, half]));
    assert_eq!(packed(half, half), Some(vec![start, half, half]));
    assert_eq!(packed(half + 1, 0), None);
    assert_eq!(packed(0, half + 1), None);
}

#[test]
fn a_state_with_both_a_debt_and_saved_permits_is_not_restored() {
    let limit = limit("1/s smooth burst 5");
    let seen = EPOCH.as_micros();
    let packed = |saved, owed| {
        let state = limit.read_state(&[0, saved, 0, seen + owed, seen])?;
        limit.pack(&state, EPOCH).map(|words| limit.write_state(&limit.unpack(&words, EPOCH)))
    };
    assert_eq!(packed(0, 0), Some(vec![0, 0, 0, seen, seen]));
    assert_eq!(packed(7, 0), Some(vec![0, 7, 0, seen, seen]));
    assert_eq!(packed(0, 9), Some(vec![0, 0, 0, seen + 9, seen]));
    assert_eq!(packed(7, 9), None);
}

#[test]
fn a_warm_up_is_packed_for_nine_years_with_its_carry() {
    let limit = limit("7/min warmup 20s");
    let written = limit.write_state(&limit.fresh(EPOCH));
    let (saved, epoch) = (written[0], EPOCH.as_micros());
    let comes_back = |free_at: u64, carry: u64, seen: u64| {
        let words = [saved, free_at, carry, seen];
        let packed = limit.pack(&limit.read_state(&words).unwrap(), EPOCH)?;
        Some(limit.write_state(&limit.unpack(&packed, EPOCH)) == words)
    };
    let last = epoch + (1 << 48) - 1;
    for carry in [0, 1, 0xffff, 0x1_0000, 0x1234_5678, u64::from(u32::MAX)] {
        assert_eq!(comes_back(epoch, carry, epoch), Some(true), "{carry:x}");
        assert_eq!(comes_back(last, carry, last), Some(true), "{carry:x}");
    }
    assert_eq!(comes_back(last + 1, 0, epoch), None);
    assert_eq!(comes_back(epoch, 0, last + 1), None);
    assert_eq!(comes_back(epoch - 1, 0, epoch), None);
    assert_eq!(comes_back(epoch, 0, epoch - 1), None);
}

#[test]
fn a_warm_up_with_impossible_saved_permits_is_not_restored() {
    let limit = limit("7/min warmup 20s");
    let written = limit.write_state(&limit.fresh(EPOCH));
    let most = f64::from_bits(written[0]);
    let reads = |saved: f64, carry: u64| {
        let words = [saved.to_bits(), written[1], carry, written[3]];
        limit.read_state(&words).is_some()
    };
    assert!(reads(0.0, 0) && reads(most, 0) && reads(most, u64::from(u32::MAX)));
    assert!(!reads(-0.5, 0) && !reads(most.next_up(), 0) && !reads(f64::NAN, 0));
    assert!(!reads(most, u64::from(u32::MAX) + 1));
}

#[test]
fn a_list_whose_costs_overflow_or_whose_tickets_repeat_is_not_restored() {
    let log = limit("3/min sliding-log");
    assert!(log.read_state(&[5, 1, 6, 2]).is_some());
    assert!(log.read_state(&[5, u64::MAX, 6, 1]).is_none());
    let places = limit("concurrency 3 lease 1min");
    assert!(places.read_state(&[2, 1, 1, 5, 9, 2, 1, 5, 9]).is_some());
    assert!(places.read_state(&[2, 1, u64::MAX, 5, 9, 2, 1, 5, 9]).is_none());
    assert!(
        places.read_state(&[2, 1, 1, 5, 9, 1, 1, 5, 9]).is_none(),
        "two requests have the same ticket"
    );
}

#[test]
fn an_entry_of_cost_0_in_a_restored_log_does_not_count() {
    let limit = limit("3/min sliding-log");
    let state = limit.read_state(&[EPOCH.as_micros(), 0]).unwrap();
    let decision = limit.peek(&state, EPOCH, 0);
    assert_eq!((decision.remaining, decision.reset_after), (3, Span::ZERO));
}

#[test]
fn a_restored_concurrency_limit_counts_its_requests_and_continues_its_tickets() {
    let limit = limit("concurrency 3 lease 1min");
    let mut state = limit.fresh(EPOCH);
    let (_, first) = limit.enter(&mut state, EPOCH, 2);
    let mut state = limit.read_state(&limit.write_state(&state)).unwrap();
    assert_eq!(limit.peek(&state, EPOCH, 0).remaining, 1);
    let (_, second) = limit.enter(&mut state, EPOCH, 1);
    limit.release(&mut state, first.unwrap());
    assert_eq!(limit.peek(&state, EPOCH, 0).remaining, 2);
    limit.release(&mut state, second.unwrap());
    assert_eq!(limit.peek(&state, EPOCH, 0).remaining, 3);
}
