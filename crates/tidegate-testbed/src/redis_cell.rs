//! A reimplementation of redis-cell 0.5 from its documentation, with which `CL.THROTTLE` is compared byte by byte.
//!
//! This version of the module is in no registry. The code shares nothing with tidegate's: it stores arrival times as
//! redis-cell does, where tidegate stores debts, and parses arguments by hand. Rounding follows the documentation.
//!
//! State    For each key, the theoretical arrival time of its next request, in nanoseconds.
//! Always   Where redis-cell has a defect, this gives the correct answer as listed in `docs/guide/resp.md`, marked with
//!          "Broken:". The maximum debt (146 years) and its replies are tidegate's.

use std::collections::HashMap;

const SECOND_NS: i128 = 1_000_000_000;
/// The maximum debt of a key: about 146 years.
const OWED_NS_MAX: i128 = 4_570_551_051_959_749 * 1_009;

/// The table of redis-cell's own test, with one more row from the project it is derived from: time in milliseconds,
/// quantity for `CL.THROTTLE k 4 1 1`, reply.
pub const OWN_TABLE: [(u64, i64, [i64; 5]); 16] = [
    (0, 6, [1, 5, 5, -1, 0]),
    (0, 1, [0, 5, 4, -1, 1]),
    (0, 1, [0, 5, 3, -1, 2]),
    (0, 1, [0, 5, 2, -1, 3]),
    (0, 1, [0, 5, 1, -1, 4]),
    (0, 1, [0, 5, 0, -1, 5]),
    (0, 1, [1, 5, 0, 1, 5]),
    (3_000, 1, [0, 5, 2, -1, 3]),
    (3_100, 1, [0, 5, 1, -1, 4]),
    (4_000, 1, [0, 5, 1, -1, 4]),
    (8_000, 1, [0, 5, 4, -1, 1]),
    (9_500, 1, [0, 5, 4, -1, 1]),
    (9_500, 0, [0, 5, 4, -1, 1]),
    (9_500, 2, [0, 5, 2, -1, 3]),
    (9_500, 5, [1, 5, 2, 3, 3]),
    (15_000, 6, [1, 5, 5, -1, 0]),
];

/// Answers `CL.THROTTLE`.
#[derive(Debug, Default)]
pub struct RedisCell {
    arrivals: HashMap<Vec<u8>, i128>,
}

impl RedisCell {
    /// Returns the RESP reply to a command with these arguments.
    pub fn reply(&mut self, now_ns: i128, words: &[&[u8]]) -> Vec<u8> {
        match self.answer(now_ns, words) {
            Ok([limited, limit, remaining, retry_s, reset_s]) => format!(
                "*5\r\n:{limited}\r\n:{limit}\r\n:{remaining}\r\n:{retry_s}\r\n:{reset_s}\r\n"
            )
            .into_bytes(),
            Err(message) => {
                // Broken: an argument may contain line breaks, and an error is one line. Redis itself writes blanks there.
                let line = message.replace(['\r', '\n'], " ");
                // Broken: it repeats control characters, which a terminal interprets. The tests send only this one.
                let line = line.replace('\0', r"\u0000");
                format!("-Cell error: Store error: {line}\r\n").into_bytes()
            }
        }
    }

    fn answer(&mut self, now_ns: i128, words: &[&[u8]]) -> Result<[i64; 5], String> {
        let (key, numbers) = match words {
            [key, burst, count, period] => (key, [burst, count, period, &&b"1"[..]]),
            [key, burst, count, period, quantity] => (key, [burst, count, period, quantity]),
            // Broken: Redis crashes if a key is not UTF-8.
            _ => {
                let form = "<key> <max_burst> <count per period> <period> [<quantity>]";
                return Err(format!("Usage: cl.throttle {form}"));
            }
        };
        let mut read = [0; 4];
        for (number, word) in read.iter_mut().zip(numbers) {
            // Broken: Redis crashes if an argument is not UTF-8.
            let word = String::from_utf8_lossy(word);
            *number = integer(&word).ok_or_else(|| format!("Couldn't parse as integer: {word}"))?;
        }
        self.throttle(now_ns, key, read).ok_or_else(|| "Zero rates are not supported".to_owned())
    }

    /// Decides a request, given as `max_burst`, `count`, `period` and `quantity`, and returns the five numbers of the
    /// reply, or `None` for a rate of zero.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "as it does")]
    pub fn throttle(
        &mut self,
        now_ns: i128,
        key: &[u8],
        [max_burst, count, period, quantity]: [i64; 4],
    ) -> Option<[i64; 5]> {
        let period_ns = clamped(i128::from(period) * SECOND_NS);
        let every = (period_ns as f64 / count as f64) as i64;
        if count == 0 || period == 0 || every == 0 {
            return None;
        }
        let (every, limit) = (i128::from(every), clamped(i128::from(max_burst) + 1));
        let tolerance = clamped(every * limit);
        let increment = clamped(every * i128::from(quantity));
        // Broken: a longer debt wraps around; a debt of less than a millisecond is lost when the key expires.
        let bearable = tolerance.min(OWED_NS_MAX);
        let known = self.arrivals.get(key).copied().unwrap_or(now_ns).max(now_ns);
        let arrival = known + increment;
        let spare = now_ns - (arrival - bearable);
        let is_limited = spare < 0;
        let (ttl, retry_s, free) = if is_limited {
            let ttl = known - now_ns;
            // Broken: with less than a millisecond to wait, it replies 0.
            let retry_s = if increment <= bearable { seconds(clamped(-spare)).max(1) } else { -1 };
            (ttl, retry_s, bearable - ttl)
        } else {
            // Broken: a refund of more than was taken leaves a key that never expires.
            let arrival = arrival.max(now_ns);
            self.arrivals.insert(key.to_vec(), arrival);
            (arrival - now_ns, -1, tolerance - (arrival - now_ns))
        };
        let remaining = match fit_in(clamped(free), every) {
            _ if free <= -every => 0,
            // Broken: it replies more than the limit, up to 2^63 - 1.
            fit if fit > limit => clamped(free) / every,
            fit => fit,
        };
        let five = [i128::from(is_limited), limit, remaining, retry_s, seconds(ttl)];
        Some(five.map(|number| i64::try_from(number).expect("each of them is clamped")))
    }
}

/// Clamps to 64 bits. Broken: beyond them it wraps around.
fn clamped(number: i128) -> i128 {
    number.clamp(i64::MIN.into(), i64::MAX.into())
}

/// Returns how many intervals fit, in whole microseconds and in floating point.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "as it does")]
fn fit_in(free_ns: i128, every_ns: i128) -> i128 {
    i128::from(((free_ns / 1_000) as f64 / (every_ns / 1_000) as f64) as i64)
}

/// Rounds down to seconds, and adds one if at least a millisecond remains.
fn seconds(ns: i128) -> i128 {
    ns / SECOND_NS + i128::from(ns % SECOND_NS / 1_000_000 > 0)
}

/// Parses an optional sign and digits, as Rust parses an `i64`.
fn integer(word: &str) -> Option<i64> {
    let (sign, digits) = match word.as_bytes() {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] | digits => (1, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut number = 0_i128;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // No 64-bit number has as many digits.
        number = (number * 10 + i128::from(digit - b'0')).min(1 << 100);
    }
    i64::try_from(sign * number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply_line(cell: &mut RedisCell, now_ns: i128, line: &str) -> String {
        let words: Vec<&[u8]> = line.split_terminator(' ').map(str::as_bytes).collect();
        let reply = String::from_utf8(cell.reply(now_ns, &words)).unwrap();
        reply.replace("\r\n", " ").trim_end().to_owned()
    }

    /// The examples of redis-cell's README and of its end-to-end test.
    #[test]
    fn its_replies_are_those_observed_of_redis_cell() {
        let mut cell = RedisCell::default();
        assert_eq!(reply_line(&mut cell, 0, "user123 15 30 60"), "*5 :0 :16 :15 :-1 :2");
        for (at_s, reply) in
            [(0, "*5 :0 :1 :0 :-1 :2"), (0, "*5 :1 :1 :0 :2 :2"), (2, "*5 :0 :1 :0 :-1 :2")]
        {
            assert_eq!(reply_line(&mut cell, at_s * SECOND_NS, "k 0 1 2 1"), reply, "{at_s}");
        }
    }

    #[test]
    fn its_replies_are_those_of_redis_cells_own_table() {
        let mut cell = RedisCell::default();
        for (ms, quantity, five) in OWN_TABLE {
            let reply = cell.throttle(i128::from(ms) * 1_000_000, b"k", [4, 1, 1, quantity]);
            assert_eq!(reply, Some(five), "{quantity} at {ms} ms");
        }
    }

    #[test]
    fn its_errors_are_those_of_redis_cell() {
        let mut cell = RedisCell::default();
        for (line, reply) in [
            ("", "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"),
            ("k 1 2 1.0", "Couldn't parse as integer: 1.0"),
            ("k 1 9223372036854775808 1", "Couldn't parse as integer: 9223372036854775808"),
            ("k 1 0 1", "Zero rates are not supported"),
            ("k 1 2000000001 1", "Zero rates are not supported"),
        ] {
            assert_eq!(
                reply_line(&mut cell, 0, line),
                format!("-Cell error: Store error: {reply}")
            );
        }
        assert_eq!(
            reply_line(&mut cell, 0, "k +1 01 -0"),
            "-Cell error: Store error: Zero rates are not supported"
        );
    }
}
