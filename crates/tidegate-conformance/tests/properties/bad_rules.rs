//! The errors of invalid rules, word for word.

use tidegate_core::{ParsedRule, RuleErrorKind};

/// The text, the marked part of it, and the message.
const BAD: &[(&str, &str, &str)] = &[
    // Empty texts, and texts that are not rules.
    ("", "", "a rule is needed, such as `100/s burst 20`"),
    ("  \t ", "", "a rule is needed, such as `100/s burst 20`"),
    ("fast", "fast", "`fast` is not a rate such as `100/s`, or `concurrency 5`"),
    ("-5", "-5", "`-5` is not a rate such as `100/s`, or `concurrency 5`"),
    // Other spellings of a rate.
    ("10", "10", "a rate is a number, a slash and a unit, without spaces: write `10/s`"),
    ("10 / s", "10", "a rate is a number, a slash and a unit, without spaces: write `10/s`"),
    ("100 /s", "100", "a rate is a number, a slash and a unit, without spaces: write `100/s`"),
    ("10 per sec", "10", "a rate is a number, a slash and a unit, without spaces: write `10/s`"),
    (
        "10 per 5 minutes",
        "10",
        "a rate is a number, a slash and a unit, without spaces: write `10/5min`",
    ),
    ("10rps", "10rps", "a rate is a number, a slash and a unit, without spaces: write `10/s`"),
    ("10 req/s", "10", "a rate is a number, a slash and a unit, without spaces: write `10/s`"),
    ("10req/s", "10req", "a rate is a number, a slash and a unit, without spaces: write `10/s`"),
    ("100 / ms", "100", "a rate is a number, a slash and a unit, without spaces: write `100/ms`"),
    (
        "9999999999 / s",
        "9999999999",
        "a rate is a number, a slash and a unit, without spaces: write `10/s`",
    ),
    // The rate is not the first word.
    ("queue 10", "queue", "the rate comes first: write `10/s queue`"),
    ("fixed 10", "fixed", "the rate comes first: write `10/s fixed`"),
    ("token bucket 10/s", "token", "the rate comes first: write `10/s burst 20`"),
    ("sliding log 100/min", "sliding", "the rate comes first: write `100/min sliding-log`"),
    ("qeue 5/min capacity 3", "qeue", "the rate comes first: write `5/min queue`"),
    ("calendar day", "calendar", "the rate comes first: write `1/day calendar`"),
    ("warmup 5/s", "warmup", "the rate comes first: write `5/s warmup 1s`"),
    ("nginx 10r/s burst=5", "nginx", "nginx's rules start with the rate: write `10r/s burst=20`"),
    ("rate=10r/s", "rate=10r/s", "nginx's rules start with the rate: write `10r/s burst=20`"),
    ("concurrent 5", "concurrent", "unknown word `concurrent`: did you mean `concurrency`?"),
    ("Concurrency 5", "Concurrency", "unknown word `Concurrency`: did you mean `concurrency`?"),
    ("5 concurrency", "5", "the word comes first: write `concurrency 5`"),
    // Zero.
    (
        "0/s burst 5",
        "burst",
        "`burst` is not allowed here: a rate of 0 denies everything and has no options",
    ),
    (
        "0/day calendar",
        "calendar",
        "`calendar` is not allowed here: a rate of 0 denies everything and has no options",
    ),
    ("none", "none", "a rule that denies everything is a rate of 0: write `0/s`"),
    ("10/0s", "0", "the period must be at least 1us"),
    ("0r/s", "0r/s", "a rule that denies everything is a rate of 0: write `0/s`"),
    ("0r/m burst=5", "0r/m", "a rule that denies everything is a rate of 0: write `0/s`"),
    ("100/s burst 0", "0", "the burst must be at least 1"),
    ("10/s leaky capacity 0", "0", "the capacity must be at least 1"),
    ("10/s queue capacity 5 wait 0s", "0", "the wait must be at least 1us"),
    ("5/s warmup 0ms", "0", "the warm-up must be at least 1us"),
    ("concurrency 0", "0", "the number in flight must be at least 1"),
    // Units.
    ("10/d", "d", "unknown unit `d`: did you mean `day`?"),
    ("10/m", "m", "unknown unit `m`: did you mean `min`?"),
    ("10/5m", "m", "unknown unit `m`: did you mean `min`?"),
    ("10/Min", "Min", "unknown unit `Min`: did you mean `min`?"),
    ("10/hour", "hour", "unknown unit `hour`: did you mean `h`?"),
    ("10/month", "month", "unknown unit `month`: did you mean `month calendar`?"),
    (
        "10/fortnight",
        "fortnight",
        "unknown unit `fortnight`: expected us, ms, s, min, h, day or week",
    ),
    ("10/s, burst 5", "s,", "unknown unit `s,`: did you mean `s`?"),
    ("10/", "", "a unit (us, ms, s, min, h, day or week) is missing here"),
    ("10/5", "", "a unit (us, ms, s, min, h, day or week) is missing here"),
    ("10/5 burst 3", "", "a unit (us, ms, s, min, h, day or week) is missing here"),
    ("10/s queue wait 2", "", "a unit (us, ms, s, min, h, day or week) is missing here"),
    ("10r/h", "r/h", "`r/h` is not nginx's `r/s` or `r/m`"),
    (
        "1/2day calendar",
        "2day",
        "`2day` is not one unit of the calendar: min, h, day, week, month or year",
    ),
    // A space too many.
    ("100/ s", "s", "there must be no space before a unit: write `100/s`"),
    ("5/15 min", "min", "there must be no space before a unit: write `5/15min`"),
    ("10/ month", "month", "there must be no space before a unit: write `10/month calendar`"),
    ("10/s queue wait 2 s", "s", "there must be no space before a unit: write `2s`"),
    // No whole numbers.
    ("-5/s", "-5", "`-5` is not a whole number"),
    ("10/-5s", "-5s", "`-5s` is not a unit, or a time such as `10s`"),
    ("10/s burst -1", "-1", "`-1` is not a whole number"),
    ("1.5/s", "1.5", "`1.5` is not a whole number (write `3/2s` for 1.5 a second)"),
    ("10/1.5s", "1.5s", "a time is a whole number of its unit: write `1500ms`"),
    (
        "10/1.0000001s",
        "1.0000001s",
        "`1.0000001s` is not a whole number and a unit, such as `1500ms`",
    ),
    ("5/s warmup 0.25h", "0.25h", "a time is a whole number of its unit: write `15min`"),
    ("10/s burst 1.5", "1.5", "`1.5` is not a whole number"),
    ("1e3/s", "1e3", "a number is written out in digits: write `1000`"),
    ("1e99/s", "1e99", "`1e99` is not a whole number"),
    ("1_000/s", "1_000", "a number is written out in digits: write `1000`"),
    ("1,000/s", "1,000", "a number is written out in digits: write `1000`"),
    ("10k/s", "10k", "a number is written out in digits: write `10000`"),
    ("2M/s", "2M", "a number is written out in digits: write `2000000`"),
    ("10/s burst 10k", "10k", "a number is written out in digits: write `10000`"),
    ("/s", "", "a number is missing here"),
    ("10r/s burst=", "", "a number is missing here"),
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
    ("1/200000day", "200000day", "the period must be at most 36525day"),
    ("1/99999999999999999999us", "99999999999999999999us", "the period must be at most 36525day"),
    ("10001/us", "10001", "a rate is at most 10000000000 per second"),
    ("1000001/s sliding-log", "1000001", "the count of a log must be at most 1000000"),
    ("5/s warmup 1s cold 1001", "1001", "the cold factor must be at most 1000"),
    // Words that are missing, superfluous or repeated.
    ("10/s burst", "", "the rule ends here; a value should follow"),
    ("10/s start", "", "the rule ends here; `empty` should follow"),
    (
        "10/s start full",
        "full",
        "`full` is not `empty`: a bucket starts full unless it starts empty",
    ),
    ("10/s sliding 5", "5", "unknown word `5`: expected nothing"),
    ("10/s burst 5 5", "5", "unknown word `5`: expected `start empty`, or nothing"),
    ("10/s burst 5 soon", "soon", "unknown word `soon`: expected `start empty`, or nothing"),
    ("10/s burst 5 start empty soon", "soon", "unknown word `soon`: expected nothing"),
    ("10/s fixed from first last", "last", "unknown word `last`: expected nothing"),
    (
        "10/s fixed from 2024-02-30T00:00:00Z",
        "2024-02-30T00:00:00Z",
        "`2024-02-30T00:00:00Z` is not `first`, or an instant such as `2024-01-01T00:00:00+08:00`",
    ),
    ("10/s queue wait 1s soon", "soon", "unknown word `soon`: expected `capacity N`, or nothing"),
    ("concurrency 5 soon", "soon", "unknown word `soon`: expected `wait T`, `lease T`, or nothing"),
    ("concurrency 5 lease 1s soon", "soon", "unknown word `soon`: expected `wait T`, or nothing"),
    (
        "10/s fast 20",
        "fast",
        "unknown word `fast`: expected `burst N`, `start empty`, `paced`, `fixed`, `calendar`, `sliding`, `sliding-log`, `leaky`, `queue`, `smooth`, `warmup T`, or nothing",
    ),
    (
        "5/s warmup 1s cold 1",
        "1",
        "`1` is not allowed here: a cold factor of 1 means no warm-up; write `smooth` instead",
    ),
    // Slips of the pen.
    ("10/s bust 20", "bust", "unknown word `bust`: did you mean `burst`?"),
    ("10/s brst 20", "brst", "unknown word `brst`: did you mean `burst`?"),
    ("10/s Burst 5", "Burst", "unknown word `Burst`: did you mean `burst`?"),
    ("10/s qeue", "qeue", "unknown word `qeue`: did you mean `queue`?"),
    ("10/s sliding_log", "sliding_log", "unknown word `sliding_log`: did you mean `sliding-log`?"),
    ("10/s sliding log", "log", "the log is one word: write `sliding-log`"),
    ("10/s queue capcity 5", "capcity", "unknown word `capcity`: did you mean `capacity`?"),
    ("10/s queue burst 5", "burst", "unknown word `burst`: did you mean `capacity`?"),
    (
        "10/s queue capacity=5",
        "capacity=5",
        "`=` is only for nginx's rules, which have a rate such as `10r/s`: write `capacity 5`",
    ),
    // Valid words that contradict each other.
    (
        "10/s burst 5 paced",
        "paced",
        "`paced` is not allowed here: `paced` means `burst 1`; leave one of them out",
    ),
    (
        "10/s paced burst 5",
        "burst",
        "`burst` is not allowed here: `paced` means `burst 1`; leave one of them out",
    ),
    (
        "10/s start empty burst 5",
        "burst",
        "`burst` is not allowed here: write `burst N` before `start empty`",
    ),
    ("10/s start empty paced", "paced", "`paced` is not allowed here: write `burst 1 start empty`"),
    (
        "20/s paced start empty",
        "start",
        "`start` is not allowed here: `paced` starts full; write `burst 1 start empty`",
    ),
    (
        "10/s burst 5 sliding",
        "sliding",
        "`sliding` is not allowed here: a rule has one algorithm, and the words before make this one a token bucket",
    ),
    ("10/s sliding fixed", "fixed", "`fixed` is not allowed here: a rule has only one algorithm"),
    (
        "10/s leaky wait 2s",
        "wait",
        "`wait` is not allowed here: only `queue` and `concurrency` have a longest wait",
    ),
    (
        "10/s fixed burst 5",
        "burst",
        "`burst` is not allowed here: only a token bucket and `smooth` have a burst",
    ),
    (
        "10/s sliding start empty",
        "start",
        "`start` is not allowed here: only a token bucket starts empty",
    ),
    (
        "10/s capacity 5",
        "capacity",
        "`capacity` is not allowed here: only `leaky` and `queue` have a capacity; a token bucket has a `burst`",
    ),
    ("10/s lease 5s", "lease", "`lease` is not allowed here: only `concurrency` has leases"),
    ("10/s cold 3", "cold", "`cold` is not allowed here: it must follow `warmup T`"),
    ("10/s from first", "from", "`from` is not allowed here: it must follow `fixed`"),
    (
        "10/s token bucket",
        "token",
        "`token` is not allowed here: a rate without an algorithm is a token bucket; leave the word out",
    ),
    (
        "10/s concurrency 5",
        "concurrency",
        "`concurrency` is not allowed here: `concurrency N` is a rule of its own",
    ),
    (
        "1/day in Asia/Shanghai",
        "in",
        "`in` is not allowed here: only `calendar` has a time zone; write `calendar in`",
    ),
    // Several rules.
    (
        "10/s, 100/min",
        ",",
        "one rule per text: create a limit for each, and decide them together with `check_all`",
    ),
    (
        "10/s,100/min",
        ",100/min",
        "one rule per text: create a limit for each, and decide them together with `check_all`",
    ),
    (
        "10/s and 100/min",
        "and",
        "one rule per text: create a limit for each, and decide them together with `check_all`",
    ),
    (
        "10/s 100/min",
        "100/min",
        "one rule per text: create a limit for each, and decide them together with `check_all`",
    ),
    // nginx's own.
    (
        "10/s burst=5",
        "burst=5",
        "`=` is only for nginx's rules, which have a rate such as `10r/s`: write `burst 5`",
    ),
    (
        "10/s nodelay",
        "nodelay",
        "`nodelay` is not allowed here: it is only for nginx's rules, which have a rate such as `10r/s`",
    ),
    (
        "10/s fixed delay=2",
        "delay=2",
        "`delay=2` is not allowed here: it is only for nginx's rules, which have a rate such as `10r/s`",
    ),
    ("10r/s burst 20", "burst", "nginx writes it with `=`: write `burst=20`"),
    ("10r/s burst", "burst", "nginx writes it with `=`: write `burst=N`"),
    ("10r/s brst=5", "brst=5", "unknown word `brst=5`: did you mean `burst=N`?"),
    (
        "10r/s burst=5 soon",
        "soon",
        "unknown word `soon`: expected `nodelay`, `delay=N`, or nothing",
    ),
    ("10r/s nodelay soon", "soon", "unknown word `soon`: expected `burst=N`, or nothing"),
    (
        "10r/s nodelay delay=2",
        "delay=2",
        "`delay=2` is not allowed here: a rule has only one of `nodelay` and `delay=`",
    ),
    (
        "10r/s delay=2 nodelay",
        "nodelay",
        "`nodelay` is not allowed here: a rule has only one of `nodelay` and `delay=`",
    ),
    ("10r/s burst=1 burst=2", "burst", "`burst` is given twice"),
];

#[test]
fn the_error_of_an_invalid_rule_has_a_message_and_a_position() {
    for &(text, culprit, message) in BAD {
        let error = text.parse::<ParsedRule>().expect_err(text);
        assert_eq!(error.message(), message, "{text:?}");
        assert_eq!(&text[error.span()], culprit, "{text:?}");
    }
}

#[test]
fn an_option_that_is_given_twice_is_not_called_unknown() {
    let twice = [
        "10/s burst 20 burst 30",
        "10/s paced paced",
        "10/s queue capacity 5 capacity 5",
        "concurrency 5 wait 1s wait 1s",
    ];
    for text in twice {
        let message = text.parse::<ParsedRule>().expect_err(text).message();
        assert!(message.ends_with("is given twice"), "{text}: {message}");
    }
}

#[test]
fn no_message_calls_a_word_both_unknown_and_expected() {
    for &(text, ..) in BAD {
        let error = text.parse::<ParsedRule>().expect_err(text);
        if let RuleErrorKind::UnknownWord { expected, .. } = error.kind() {
            let culprit = format!("`{}", &text[error.span()]);
            assert!(!expected.contains(&culprit), "{text}: {}", error.message());
        }
    }
}

#[test]
fn the_debug_output_of_an_error_shows_the_position() {
    let error = "10/s bust 20".parse::<ParsedRule>().unwrap_err();
    let lines = "\nunknown word `bust`: did you mean `burst`?\n  10/s bust 20\n       ^^^^";
    assert_eq!(format!("{error:?}"), lines);
}
