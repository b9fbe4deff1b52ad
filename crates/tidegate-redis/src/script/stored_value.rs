//! The whole value of a key, which Rust reads and writes only when a rule changes.

use crate::script::codec::{bytes, numbers};
use crate::script::{Shape, Twin};
use tidegate::Rule;
use tidegate_core::{Limit, Span, State, Timestamp, TooLargeForLua};

/// Doubles of one held permit in core; a row of the twin has a partial sum besides.
const PERMIT_WIDTH: usize = 4;
/// Doubles before a state: the version, and when the key expires. Before rows follow the time of the last write, head, tail,
/// a sum, the last ticket, the number of held rows and the capacity in rows. A cell has the time of the last write at its end.
const CELL_HEADER: usize = 2;
const ROWS_HEADER: usize = 9;
/// The time to live of permits without a lease after the last request, as in `concurrency.lua`.
pub(crate) const ORPHANED: Span = Span::from_secs(86_400);
/// The longest time to live: 142 years.
const LIFE_MAX: Span = Span::from_micros(1 << 52);
/// Added to a key's time to live, so that not every request has to renew it, as in `cell.lua`.
const SPARE: Span = Span::from_millis(900);

/// Returns the version of the rule under which a value was written.
pub(crate) fn version(value: &[u8]) -> Option<u64> {
    let first = value.first_chunk::<8>()?;
    whole(f64::from_le_bytes(*first))
}

/// Returns when a value was written.
pub(crate) fn written(limit: &Limit, value: &[u8]) -> Option<Timestamp> {
    let numbers = numbers(value)?;
    let written = match Twin::of(limit.stem())?.shape {
        Shape::Cell { state } => numbers.get(CELL_HEADER + state),
        Shape::Rows { .. } => numbers.get(2),
    };
    whole(*written?).map(Timestamp::from_micros)
}

/// Returns the state in a value that this limit's twin has written.
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

/// Converts the sums of a log to costs.
fn log_words(rows: &[f64], mut before: f64) -> Option<Vec<u64>> {
    let mut words = Vec::with_capacity(rows.len());
    for row in rows.as_chunks::<2>().0 {
        words.extend([whole(row[0])?, whole(row[1] - before)?]);
        before = row[1];
    }
    Some(words)
}

/// Converts the rows of held permits, without released ones.
fn holds_words(rows: &[f64], ticket: f64) -> Option<Vec<u64>> {
    let mut words = vec![whole(ticket)?];
    for row in rows.as_chunks::<{ PERMIT_WIDTH + 1 }>().0.iter().filter(|row| row[1] > 0.0) {
        let until = if row[3] < 0.0 { u64::MAX } else { whole(row[3])? };
        words.extend([whole(row[0])?, whole(row[1])?, whole(row[2])?, until]);
    }
    Some(words)
}

/// Returns a state as the twin would write it, and its time to live; `None` if the key would not be stored.
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
        if width > PERMIT_WIDTH {
            let holds = state_numbers.as_chunks::<PERMIT_WIDTH>().0;
            sum = holds.iter().map(|row| row[1]).sum();
            ticket = holds.last().map_or(0.0, |row| row[0]);
            state_numbers = with_sums(holds);
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

/// Returns the longest time to live of a state that is written now. Permits live as long as they are held.
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

/// Adds the partial sums of a Fenwick tree to the rows, as in `sums.lua`.
fn with_sums(holds: &[[f64; PERMIT_WIDTH]]) -> Vec<f64> {
    let mut all = Vec::with_capacity(holds.len() * (PERMIT_WIDTH + 1));
    for (index, row) in holds.iter().enumerate() {
        let count = 1 << (index + 1).trailing_zeros();
        let sum: f64 = holds[index + 1 - count..=index].iter().map(|row| row[1]).sum();
        all.extend(row);
        all.push(sum);
    }
    all
}

#[expect(clippy::cast_precision_loss, reason = "versions, times and counts here are below 2^53")]
fn float(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked before the cast"
)]
fn whole(number: f64) -> Option<u64> {
    ((0.0..=9_007_199_254_740_992.0).contains(&number) && number.fract() == 0.0)
        .then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_state_is_read_back() {
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
    fn a_value_that_no_twin_has_written_is_not_read() {
        let limit: Limit = "7/min burst 3".parse().unwrap();
        for value in [&b""[..], b"hello", &[0; 16], &[0; 24], &[0xff; 32]] {
            assert!(read(&limit, value).is_none(), "{value:?}");
        }
        let log: Limit = "5/min sliding-log".parse().unwrap();
        let endless = bytes(&[1.0, 2.0, 3.0, 0.0, 1e15, 0.0, 0.0, 1e15, 1e15]);
        assert!(read(&log, &endless).is_none());
    }
}
