//! What a bad rule is told, word for word.

use tidegate_core::Rule;

/// The rule, the characters that are pointed at, and what is said.
const BAD: [(&str, &str, &str); 53] = [
    // Nothing, or no rule at all.
    ("", "", "a rule is needed, such as `100/s burst 20`"),
    ("  \t ", "", "a rule is needed, such as `100/s burst 20`"),
    ("fast", "fast", "`fast` is not a rate such as `100/s`, or `concurrency 5`"),
    ("10", "10", "`10` is not a rate such as `100/s`, or `concurrency 5`"),
    ("10 / s", "10", "`10` is not a rate such as `100/s`, or `concurrency 5`"),
    // Zero.
    ("0/s", "0", "the count must be at least 1"),
    ("00/s", "00", "the count must be at least 1"),
    ("10/0s", "0", "the period must be at least 1"),
    ("0r/s", "0", "the rate must be at least 1"),
    ("100/s burst 0", "0", "the burst must be at least 1"),
    ("10/s leaky capacity 0", "0", "the capacity must be at least 1"),
    ("10/s queue capacity 5 wait 0s", "0", "the wait must be at least 1"),
    ("5/s warmup 0ms", "0", "the warm-up must be at least 1"),
    ("concurrency 0", "0", "the number in flight must be at least 1"),
    // Units.
    ("10/d", "d", "unknown unit `d`: did you mean `day`?"),
    ("10/m", "m", "unknown unit `m`: did you mean `min`?"),
    ("10/5m", "m", "unknown unit `m`: did you mean `min`?"),
    ("10/hour", "hour", "unknown unit `hour`: did you mean `h`?"),
    ("10/month", "month", "unknown unit `month`: did you mean `month calendar`?"),
    (
        "10/fortnight",
        "fortnight",
        "unknown unit `fortnight`: expected us, ms, s, min, h, day or week",
    ),
    ("10/", "", "the rule ends here; a unit: us, ms, s, min, h, day or week should follow"),
    ("10/5", "", "the rule ends here; a unit: us, ms, s, min, h, day or week should follow"),
    (
        "10/s queue wait 2",
        "",
        "the rule ends here; a unit: us, ms, s, min, h, day or week should follow",
    ),
    ("10r/h", "r/h", "`r/h` is not nginx's `r/s` or `r/m`"),
    (
        "1/2day calendar",
        "2day",
        "`2day` is not one unit of the calendar: min, h, day, week, month or year",
    ),
    // No whole numbers.
    ("-5/s", "-5", "`-5` is not a whole number"),
    ("10/-5s", "-5s", "unknown unit `-5s`: expected us, ms, s, min, h, day or week"),
    ("10/s burst -1", "-1", "`-1` is not a whole number"),
    ("1.5/s", "1.5", "`1.5` is not a whole number (write `3/2s` for 1.5 a second)"),
    ("10/1.5s", ".5s", "unknown unit `.5s`: expected us, ms, s, min, h, day or week"),
    ("10/s burst 1.5", "1.5", "`1.5` is not a whole number"),
    ("1e3/s", "1e3", "`1e3` is not a whole number"),
    ("1_000/s", "1_000", "`1_000` is not a whole number"),
    ("/s", "", "`` is not a whole number"),
    // Too large.
    ("9007199254740993/s", "9007199254740993", "the count must be at most 9007199254740992"),
    (
        "18446744073709551616/s",
        "18446744073709551616",
        "the count must be at most 9007199254740992",
    ),
    (
        "1/s burst 9007199254740993",
        "9007199254740993",
        "the burst must be at most 9007199254740992",
    ),
    ("10001/us", "10001", "faster than 10000000000 a second: that is more than can be counted"),
    ("1000001/s sliding-log", "1000001", "the count of a log must be at most 1000000"),
    ("5/s warmup 1s cold 1001", "1001", "the cold factor must be at most 1000"),
    // Words that are missing, too many, or said twice.
    ("10/s burst", "", "the rule ends here; a value should follow"),
    (
        "10/s start full",
        "full",
        "`full` is not `empty`: a bucket starts full unless it starts empty",
    ),
    ("10/s sliding fixed", "fixed", "unknown word `fixed`: expected nothing"),
    ("10/s leaky wait 2s", "wait", "unknown word `wait`: expected `capacity N`, or nothing"),
    (
        "10/s fixed from first last",
        "last",
        "unknown word `last`: expected `from first`, `from <instant>`, or nothing",
    ),
    (
        "10/s fixed from 2024-02-30T00:00:00Z",
        "2024-02-30T00:00:00Z",
        "`2024-02-30T00:00:00Z` is not `first`, or an instant such as `2024-01-01T00:00:00+08:00`",
    ),
    ("concurrency 5 soon", "soon", "unknown word `soon`: expected `wait T`, `lease T`, or nothing"),
    (
        "10/s bust 20",
        "bust",
        "unknown word `bust`: expected `burst N`, `start empty`, `paced`, `fixed`, `calendar`, `sliding`, `sliding-log`, `leaky`, `queue`, `smooth` or `warmup T`",
    ),
    (
        "5/s warmup 1s cold 1",
        "1",
        "`1` cannot stand here: a cold factor of 1 is no warm-up; `smooth` is that rule",
    ),
    // nginx's own.
    (
        "10r/s burst 20",
        "burst",
        "unknown word `burst`: expected `burst=N`, `nodelay`, `delay=N`, or nothing",
    ),
    (
        "10r/s nodelay delay=2",
        "delay=2",
        "`delay=2` cannot stand here: it is said already (`nodelay` and `delay=` rule each other out)",
    ),
    (
        "10r/s delay=2 nodelay",
        "nodelay",
        "`nodelay` cannot stand here: it is said already (`nodelay` and `delay=` rule each other out)",
    ),
    (
        "10r/s burst=1 burst=2",
        "burst=2",
        "`burst=2` cannot stand here: it is said already (`nodelay` and `delay=` rule each other out)",
    ),
];

#[test]
fn a_bad_rule_is_told_what_is_wrong_and_where() {
    for (text, culprit, message) in BAD {
        let error = text.parse::<Rule>().expect_err(text);
        assert_eq!(error.message(), message, "{text:?}");
        assert_eq!(&text[error.span()], culprit, "{text:?}");
    }
}

#[test]
fn a_word_that_is_said_twice_is_not_called_unknown() {
    let twice = [
        "10/s burst 20 burst 30",
        "10/s paced paced",
        "10/s queue capacity 5 capacity 5",
        "concurrency 5 wait 1s wait 1s",
    ];
    for text in twice {
        let message = text.parse::<Rule>().expect_err(text).message();
        assert!(!message.starts_with("unknown word"), "{text}: {message}");
    }
}
