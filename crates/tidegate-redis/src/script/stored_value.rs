//! A key's value as a whole: read and written by Rust only when a rule changes.

use crate::script::codec::{bytes, numbers};
use crate::script::{Shape, Twin};
use tidegate::Rule;
use tidegate_core::{Limit, Span, State, Timestamp, TooLargeForLua};

/// Doubles of a row of core's, where twins carry sums besides.
const HOLD: usize = 4;
/// Doubles before a state: version, until when it lives. Before rows also when it was written, head, tail, a sum, the
/// last ticket, how many are held and for how many there is room; a cell says after its state when it was written.
const CELL_HEADER: usize = 2;
const ROWS_HEADER: usize = 9;
/// How long a key lives that has somebody in flight without a lease: as `concurrency.lua` has it.
pub(crate) const ORPHANED: Span = Span::from_secs(86_400);
/// No key lives longer: 142 years.
const LIFE_MAX: Span = Span::from_micros(1 << 52);
/// What is added to a key's life, so that it need not be renewed with every request: as `cell.lua` has it.
const SPARE: Span = Span::from_millis(900);

/// Which version of the rule a value belongs to.
pub(crate) fn version(value: &[u8]) -> Option<u64> {
    let first = value.first_chunk::<8>()?;
    whole(f64::from_le_bytes(*first))
}

/// When a value was written.
pub(crate) fn written(limit: &Limit, value: &[u8]) -> Option<Timestamp> {
    let numbers = numbers(value)?;
    let written = match Twin::of(limit.stem())?.shape {
        Shape::Cell { state } => numbers.get(CELL_HEADER + state),
        Shape::Rows { .. } => numbers.get(2),
    };
    whole(*written?).map(Timestamp::from_micros)
}

/// The state in a value that this limit's twin has written.
pub(crate) fn read(limit: &Limit, value: &[u8]) -> Option<State> {
    let numbers = numbers(value)?;
    match Twin::of(limit.stem())?.shape {
        Shape::Cell { state } => {
            let held = numbers.get(CELL_HEADER..).filter(|held| held.len() == state + 1)?;
            limit.state_from_lua(&held[..state])
        }
        Shape::Rows { width } => {
            let [_, _, _, head, tail, sum, ticket, ..] = *numbers.first_chunk::<ROWS_HEADER>()?;
            let live = usize::try_from(whole(head)?).ok()?..usize::try_from(whole(tail)?).ok()?;
            let rows =
                numbers.get(ROWS_HEADER + live.start * width..ROWS_HEADER + live.end * width)?;
            let words = match width {
                2 => log_words(rows, sum),
                _ => holds_words(rows, ticket),
            };
            limit.read_state(&words?)
        }
    }
}

/// Sums become costs.
fn log_words(rows: &[f64], mut before: f64) -> Option<Vec<u64>> {
    let mut words = Vec::with_capacity(rows.len());
    for row in rows.as_chunks::<2>().0 {
        words.extend([whole(row[0])?, whole(row[1] - before)?]);
        before = row[1];
    }
    Some(words)
}

/// What was given back is left out.
fn holds_words(rows: &[f64], ticket: f64) -> Option<Vec<u64>> {
    let mut words = vec![whole(ticket)?];
    for row in rows.as_chunks::<{ HOLD + 1 }>().0.iter().filter(|row| row[1] > 0.0) {
        let until = if row[3] < 0.0 { u64::MAX } else { whole(row[3])? };
        words.extend([whole(row[0])?, whole(row[1])?, whole(row[2])?, until]);
    }
    Some(words)
}

/// A state as the twin would have written it, and how long it lives; `None` if there is nothing to keep.
pub(crate) fn write(
    limit: &Limit,
    version: u64,
    state: &State,
    now: Timestamp,
) -> Result<Option<(Vec<u8>, Span)>, TooLargeForLua> {
    let drain = limit.peek(state, now, 0).reset_after;
    if drain.is_zero() {
        return Ok(None);
    }
    let lives = drain.min(LIFE_MAX) + SPARE;
    let lives = if drain == Span::MAX { ORPHANED } else { lives };
    let twin = Twin::of(limit.stem()).ok_or(TooLargeForLua)?;
    let mut state_numbers = limit.state_to_lua(state)?;
    let mut all = vec![float(version), float((now + lives).as_micros())];
    if let Shape::Rows { width } = twin.shape {
        let (mut sum, mut ticket) = (0.0, 0.0);
        if width > HOLD {
            let holds = state_numbers.as_chunks::<HOLD>().0;
            sum = holds.iter().map(|row| row[1]).sum();
            ticket = holds.last().map_or(0.0, |row| row[0]);
            state_numbers = carrying(holds);
        }
        let rows = float((state_numbers.len() / width) as u64);
        all.extend([float(now.as_micros()), 0.0, rows, sum, ticket, rows, rows]);
    }
    all.extend(state_numbers);
    if matches!(twin.shape, Shape::Cell { .. }) {
        all.push(float(now.as_micros()));
    }
    Ok(Some((bytes(&all), lives)))
}

/// How long a state of this rule lives at the longest, if it is written now. Places do as long as they are held.
pub(crate) fn longest_life(rule: &Rule, now: Timestamp) -> Span {
    if rule.is_concurrency() {
        return rule.lease().unwrap_or(ORPHANED).min(LIFE_MAX);
    }
    let limit = rule.limit();
    match limit.peek(&limit.exhausted(now), now, 0).reset_after {
        Span::MAX => ORPHANED,
        drain => drain.min(LIFE_MAX),
    }
}

/// Each row with what it carries, as `sums.lua` has it: the costs of as many rows, itself the last, as the number of rows
/// up to it can be divided by as a power of two.
fn carrying(holds: &[[f64; HOLD]]) -> Vec<f64> {
    let mut all = Vec::with_capacity(holds.len() * (HOLD + 1));
    for (place, row) in holds.iter().enumerate() {
        let many = 1 << (place + 1).trailing_zeros();
        let carried: f64 = holds[place + 1 - many..=place].iter().map(|row| row[1]).sum();
        all.extend(row);
        all.push(carried);
    }
    all
}

#[expect(clippy::cast_precision_loss, reason = "versions, times and counts here are below 2^53")]
fn float(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "looked at before")]
fn whole(number: f64) -> Option<u64> {
    ((0.0..=9_007_199_254_740_992.0).contains(&number) && number.fract() == 0.0)
        .then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        let rules = [
            "7/min burst 3",
            "10/s leaky capacity 4",
            "10/s queue capacity 5",
            "5/min fixed",
            "5/day calendar",
            "5/min sliding",
            "5/min sliding-log",
            "5/s smooth",
            "5/s warmup 1s",
            "10r/m burst=5",
            "concurrency 5",
            "concurrency 5 lease 30s",
        ];
        for text in rules {
            let limit: Limit = text.parse().unwrap();
            let mut state = limit.fresh(now);
            let _ = limit.decide(&mut state, now, 2);
            let later = now + Span::from_millis(3);
            let _ = limit.decide(&mut state, later, 1);
            let (value, lives) = write(&limit, 77, &state, later).unwrap().expect("it is in use");
            assert_eq!(version(&value), Some(77), "{text}");
            assert!(lives > Span::ZERO, "{text}");
            let read = read(&limit, &value).unwrap_or_else(|| panic!("{text}"));
            for cost in 0..6 {
                let (was, is) = (limit.peek(&state, later, cost), limit.peek(&read, later, cost));
                if text == "concurrency 5" {
                    assert_eq!((was.is_allow(), was.remaining), (is.is_allow(), is.remaining));
                } else {
                    assert_eq!(was, is, "{text}: {cost}");
                }
            }
        }
    }

    #[test]
    fn what_nobody_has_written_is_not_read() {
        let limit: Limit = "7/min burst 3".parse().unwrap();
        for value in [&b""[..], b"hello", &[0; 16], &[0; 24], &[0xff; 32]] {
            assert!(read(&limit, value).is_none(), "{value:?}");
        }
        let log: Limit = "5/min sliding-log".parse().unwrap();
        let endless = bytes(&[1.0, 2.0, 3.0, 0.0, 1e15, 0.0, 0.0, 1e15, 1e15]);
        assert!(read(&log, &endless).is_none());
    }
}
