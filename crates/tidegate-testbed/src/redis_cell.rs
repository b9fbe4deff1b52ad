//! redis-cell 0.5 written down once more, from its description: what `CL.THROTTLE` is held against, word for word.
//!
//! The module of this version is in no registry. This shares no code with ours: it keeps times of arrival as redis-cell does,
//! where we keep debts, and reads words by hand. Roundings are those of the description, here and there.
//!
//! State    For each key, when its next request would come if requests came evenly, in nanoseconds.
//! Always   Where redis-cell is plainly broken, what `docs/guide/resp.md` lists as the right answer, marked with "Broken:". How
//!          much can be owed at most (146 years) is ours, and so is what is said of it.

use std::collections::HashMap;

const SECOND_NS: i128 = 1_000_000_000;
/// What we can keep of what a key owes: some 146 years.
const OWED_NS_MAX: i128 = 4_570_551_051_959_749 * 1_009;

/// redis-cell's own table, with the row that its ancestor has besides: at so many milliseconds `CL.THROTTLE k 4 1 1` is asked for so
/// much, and says this.
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
    /// The answer, in the bytes of RESP, to these words after the command's name.
    pub fn say(&mut self, now_ns: i128, words: &[&[u8]]) -> Vec<u8> {
        match self.answer(now_ns, words) {
            Ok([limited, limit, remaining, retry_s, reset_s]) => format!(
                "*5\r\n:{limited}\r\n:{limit}\r\n:{remaining}\r\n:{retry_s}\r\n:{reset_s}\r\n"
            )
            .into_bytes(),
            Err(message) => {
                // Broken: a word may have the end of a line in it, and an error is a line. What Redis itself says has blanks there.
                let line = message.replace(['\r', '\n'], " ");
                // Broken: it repeats control characters, which a terminal obeys. The only one that the tests say is this.
                let line = line.replace('\0', r"\u0000");
                format!("-Cell error: Store error: {line}\r\n").into_bytes()
            }
        }
    }

    fn answer(&mut self, now_ns: i128, words: &[&[u8]]) -> Result<[i64; 5], String> {
        let (key, numbers) = match words {
            [key, burst, count, period] => (key, [burst, count, period, &&b"1"[..]]),
            [key, burst, count, period, quantity] => (key, [burst, count, period, quantity]),
            // Broken, for a key: Redis crashes if it is not UTF-8.
            _ => {
                let form = "<key> <max_burst> <count per period> <period> [<quantity>]";
                return Err(format!("Usage: cl.throttle {form}"));
            }
        };
        let mut read = [0; 4];
        for (number, word) in read.iter_mut().zip(numbers) {
            // Broken: Redis crashes with a word that is not UTF-8.
            let word = String::from_utf8_lossy(word);
            *number = integer(&word).ok_or_else(|| format!("Couldn't parse as integer: {word}"))?;
        }
        self.throttle(now_ns, key, read).ok_or_else(|| "Zero rates are not supported".to_owned())
    }

    /// The five numbers for `max_burst`, `count`, `period` and `quantity`; `None` for a rate of zero.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "as it does")]
    pub fn throttle(
        &mut self,
        now_ns: i128,
        key: &[u8],
        [max_burst, count, period, quantity]: [i64; 4],
    ) -> Option<[i64; 5]> {
        let period_ns = held(i128::from(period) * SECOND_NS);
        let every = (period_ns as f64 / count as f64) as i64;
        if count == 0 || period == 0 || every == 0 {
            return None;
        }
        let (every, limit) = (i128::from(every), held(i128::from(max_burst) + 1));
        let tolerance = held(every * limit);
        let increment = held(every * i128::from(quantity));
        // Broken: what is owed for longer wraps around; what is owed for less than a millisecond is forgotten with the key.
        let bearable = tolerance.min(OWED_NS_MAX);
        let known = self.arrivals.get(key).copied().unwrap_or(now_ns).max(now_ns);
        let arrival = known + increment;
        let spare = now_ns - (arrival - bearable);
        let is_limited = spare < 0;
        let (ttl, retry_s, free) = if is_limited {
            let ttl = known - now_ns;
            // Broken: with less than a millisecond to go, it says 0.
            let retry_s = if increment <= bearable { seconds(held(-spare)).max(1) } else { -1 };
            (ttl, retry_s, bearable - ttl)
        } else {
            // Broken: if more is given back than was taken, a key is left that never expires.
            let arrival = arrival.max(now_ns);
            self.arrivals.insert(key.to_vec(), arrival);
            (arrival - now_ns, -1, tolerance - (arrival - now_ns))
        };
        let remaining = match fit_in(held(free), every) {
            _ if free <= -every => 0,
            // Broken: more than the limit, and 2^63 - 1.
            fit if fit > limit => held(free) / every,
            fit => fit,
        };
        let five = [i128::from(is_limited), limit, remaining, retry_s, seconds(ttl)];
        Some(five.map(|number| i64::try_from(number).expect("each of them was held")))
    }
}

/// Broken: beyond 64 bits it wraps around.
fn held(number: i128) -> i128 {
    number.clamp(i64::MIN.into(), i64::MAX.into())
}

/// How many intervals fit, by whole microseconds and in floating point.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "as it does")]
fn fit_in(free_ns: i128, every_ns: i128) -> i128 {
    i128::from(((free_ns / 1_000) as f64 / (every_ns / 1_000) as f64) as i64)
}

/// Cut off, and one more if there is a whole millisecond beside it.
fn seconds(ns: i128) -> i128 {
    ns / SECOND_NS + i128::from(ns % SECOND_NS / 1_000_000 > 0)
}

/// A sign or none, and digits: as Rust reads 64 bits.
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
        // No number of 64 bits is so large, and it goes on.
        number = (number * 10 + i128::from(digit - b'0')).min(1 << 100);
    }
    i64::try_from(sign * number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(cell: &mut RedisCell, now_ns: i128, line: &str) -> String {
        let words: Vec<&[u8]> = line.split_terminator(' ').map(str::as_bytes).collect();
        let said = String::from_utf8(cell.say(now_ns, &words)).unwrap();
        said.replace("\r\n", " ").trim_end().to_owned()
    }

    /// What redis-cell's README and its own end-to-end test show.
    #[test]
    fn it_says_what_redis_cell_is_seen_to_say() {
        let mut cell = RedisCell::default();
        assert_eq!(say(&mut cell, 0, "user123 15 30 60"), "*5 :0 :16 :15 :-1 :2");
        for (at_s, said) in
            [(0, "*5 :0 :1 :0 :-1 :2"), (0, "*5 :1 :1 :0 :2 :2"), (2, "*5 :0 :1 :0 :-1 :2")]
        {
            assert_eq!(say(&mut cell, at_s * SECOND_NS, "k 0 1 2 1"), said, "{at_s}");
        }
    }

    #[test]
    fn it_says_what_redis_cells_own_table_says() {
        let mut cell = RedisCell::default();
        for (ms, quantity, five) in OWN_TABLE {
            let said = cell.throttle(i128::from(ms) * 1_000_000, b"k", [4, 1, 1, quantity]);
            assert_eq!(said, Some(five), "{quantity} at {ms} ms");
        }
    }

    #[test]
    fn it_refuses_what_redis_cell_refuses() {
        let mut cell = RedisCell::default();
        for (line, said) in [
            ("", "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"),
            ("k 1 2 1.0", "Couldn't parse as integer: 1.0"),
            ("k 1 9223372036854775808 1", "Couldn't parse as integer: 9223372036854775808"),
            ("k 1 0 1", "Zero rates are not supported"),
            ("k 1 2000000001 1", "Zero rates are not supported"),
        ] {
            assert_eq!(say(&mut cell, 0, line), format!("-Cell error: Store error: {said}"));
        }
        assert_eq!(
            say(&mut cell, 0, "k +1 01 -0"),
            "-Cell error: Store error: Zero rates are not supported"
        );
    }
}
