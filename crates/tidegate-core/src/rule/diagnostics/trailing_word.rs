//! Errors of a word after a complete rule: which words could follow, which one was probably meant, or why a valid word is not
//! possible here.
//!
//! Always   No message suggests a word that is used already or that contradicts the rest of the rule.

use super::super::RuleKind;
use super::edit_distance::nearest_word;
use super::words::Word;
use super::{RuleError, RuleErrorKind};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The words that name an algorithm; each follows the rate.
pub(in crate::rule) const SHAPES: [&str; 9] =
    ["paced", "fixed", "calendar", "sliding", "sliding-log", "leaky", "queue", "smooth", "warmup"];

const NGINX_SPELLING: &str = "`=` is only for nginx's rules, which have a rate such as `10r/s`";
const NGINX_OPTION: &str = "it is only for nginx's rules, which have a rate such as `10r/s`";
/// The longest value that is repeated in a suggestion.
const VALUE_BYTES_MAX: usize = 20;

/// Returns the error for `word`, which follows a rule that is complete without it.
pub(in crate::rule) fn error(kind: &RuleKind, word: Word<'_>) -> RuleError {
    let open = open(kind, word);
    word.error(
        several(word)
            .or_else(|| rewrite(kind, word, &open))
            .or_else(|| is_repeated(word).then_some(RuleErrorKind::Repeated))
            .or_else(|| conflict(kind, word).map(|why| RuleErrorKind::Conflict { why }))
            .unwrap_or_else(|| unknown(kind, word, &open)),
    )
}

/// The options of each algorithm, as they are written.
fn options(kind: &RuleKind) -> &'static [&'static str] {
    match kind {
        RuleKind::TokenBucket { .. } => &[
            "burst N",
            "start empty",
            "paced",
            "fixed",
            "calendar",
            "sliding",
            "sliding-log",
            "leaky",
            "queue",
            "smooth",
            "warmup T",
        ],
        RuleKind::Fixed { .. } => &["from first", "from <instant>"],
        RuleKind::Calendar { .. } => &["in <time zone>"],
        RuleKind::Leaky { .. } => &["capacity N"],
        RuleKind::Queue { .. } => &["capacity N", "wait T"],
        RuleKind::Smooth { .. } => &["burst N"],
        RuleKind::Warmup { .. } => &["cold N"],
        RuleKind::Concurrency { .. } => &["wait T", "lease T"],
        RuleKind::Nginx { .. } => &["burst=N", "nodelay", "delay=N"],
        RuleKind::Sliding { .. } | RuleKind::SlidingLog { .. } | RuleKind::Nothing => &[],
    }
}

/// Returns the options that the words before `word` leave open.
fn open(kind: &RuleKind, word: Word<'_>) -> Vec<&'static str> {
    let given: Vec<&str> = word.before().map(|word| name(word.text)).collect();
    let is_open = |option: &&&'static str| match kind {
        // After the rate alone, every option is possible. After other words, only `burst N` leaves one.
        RuleKind::TokenBucket { .. } if given.len() == 1 => true,
        RuleKind::TokenBucket { .. } => {
            **option == "start empty" && given.contains(&"burst") && !given.contains(&"start")
        }
        RuleKind::Nginx { .. } if **option != "burst=N" => {
            !given.contains(&"nodelay") && !given.contains(&"delay")
        }
        _ => !given.contains(&name(option)),
    };
    options(kind).iter().filter(is_open).copied().collect()
}

/// Returns the name of an option without its value.
fn name(option: &str) -> &str {
    option.split(['=', ' ']).next().unwrap_or(option)
}

/// `10/s and 100/min`.
fn several(word: Word<'_>) -> Option<RuleErrorKind> {
    let is_rate = |word: Word<'_>| !word.digits().text.is_empty() && word.text.contains('/');
    let joins = ["and", "&", "&&", "+", ",", ";", "|"].contains(&word.text);
    let is_next = joins && word.after().next().is_some_and(is_rate);
    (is_rate(word) || is_next).then_some(RuleErrorKind::SeveralRules)
}

/// Returns the error for an option whose name and value are joined in the wrong way.
fn rewrite(kind: &RuleKind, word: Word<'_>, open: &[&str]) -> Option<RuleErrorKind> {
    let is_open = |wanted: &str| open.iter().any(|option| name(option) == wanted);
    match (kind, word.text.split_once('=')) {
        (RuleKind::Sliding { .. }, None) if word.text == "log" => {
            let (why, write) = ("the log is one word", "sliding-log".to_owned());
            Some(RuleErrorKind::Rewrite { why, write })
        }
        (RuleKind::Nginx { .. }, None) if word.text != "nodelay" && is_open(word.text) => {
            let value = word.after().next().map_or("", |value| value.text);
            let write = format!("{}={}", word.text, shown(value, "N"));
            Some(RuleErrorKind::Rewrite { why: "nginx writes it with `=`", write })
        }
        (RuleKind::Leaky { .. } | RuleKind::Queue { .. }, Some(("burst", value)))
            if is_open("capacity") =>
        {
            let write = format!("capacity {}", shown(value, "N"));
            Some(RuleErrorKind::Rewrite { why: NGINX_SPELLING, write })
        }
        (RuleKind::Nginx { .. }, Some(_)) | (_, None) => None,
        (_, Some((option, value))) if is_open(option) => {
            let write = format!("{option} {}", shown(value, "N"));
            Some(RuleErrorKind::Rewrite { why: NGINX_SPELLING, write })
        }
        _ => None,
    }
}

/// Returns a value if it can be repeated in a suggestion, or else its placeholder.
fn shown<'t>(value: &'t str, placeholder: &'t str) -> &'t str {
    let is_plain = value.chars().all(|c| c.is_ascii_alphanumeric());
    if is_plain && (1..=VALUE_BYTES_MAX).contains(&value.len()) { value } else { placeholder }
}

/// Returns whether a word, which is not a value, occurs before.
fn is_repeated(word: Word<'_>) -> bool {
    word.text.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.before().any(|before| before.text == word.text)
}

/// Returns why a valid word is not allowed here.
fn conflict(kind: &RuleKind, word: Word<'_>) -> Option<&'static str> {
    let is_given = |wanted: &str| word.before().any(|word| word.text == wanted);
    let is_bucket = matches!(kind, RuleKind::TokenBucket { .. });
    if matches!(kind, RuleKind::Nothing) {
        return Some("a rate of 0 denies everything and has no options");
    }
    Some(match word.text {
        "burst" if is_given("paced") => "`paced` means `burst 1`; leave one of them out",
        "paced" if is_bucket && is_given("start") => "write `burst 1 start empty`",
        "paced" if is_bucket => "`paced` means `burst 1`; leave one of them out",
        "start" if is_given("paced") => "`paced` starts full; write `burst 1 start empty`",
        "start" => "only a token bucket starts empty",
        "burst" if is_bucket => "write `burst N` before `start empty`",
        // These algorithms have a capacity, which is suggested instead.
        "burst" if matches!(kind, RuleKind::Leaky { .. } | RuleKind::Queue { .. }) => return None,
        "burst" => "only a token bucket and `smooth` have a burst",
        text if SHAPES.contains(&text) && is_bucket => {
            "a rule has one algorithm, and the words before make this one a token bucket"
        }
        text if SHAPES.contains(&text) => "a rule has only one algorithm",
        "concurrency" => "`concurrency N` is a rule of its own",
        "token" | "token-bucket" | "token_bucket" if is_bucket => {
            "a rate without an algorithm is a token bucket; leave the word out"
        }
        "capacity" => "only `leaky` and `queue` have a capacity; a token bucket has a `burst`",
        "wait" => "only `queue` and `concurrency` have a longest wait",
        "lease" => "only `concurrency` has leases",
        "cold" => "it must follow `warmup T`",
        "from" => "it must follow `fixed`",
        "in" => "only `calendar` has a time zone; write `calendar in`",
        "nodelay" => NGINX_OPTION,
        text if text.starts_with("burst=") || text.starts_with("delay=") => NGINX_OPTION,
        _ => return None,
    })
}

fn unknown(kind: &RuleKind, word: Word<'_>, open: &[&'static str]) -> RuleErrorKind {
    let is_capacity = word.text == "burst" && open.contains(&"capacity N");
    let near = nearest_word(name(word.text), open.iter().map(|option| name(option)));
    let hint = match kind {
        _ if is_capacity => Some("capacity"),
        // nginx's options are one word with their value.
        RuleKind::Nginx { .. } => open.iter().find(|option| near == Some(name(option))).copied(),
        _ => near,
    };
    RuleErrorKind::UnknownWord { expected: expected(open), hint }
}

/// Returns the options as a readable list.
fn expected(open: &[&str]) -> String {
    if open.is_empty() {
        return "nothing".to_owned();
    }
    let mut list = String::new();
    for option in open {
        list.push('`');
        list.push_str(option);
        list.push_str("`, ");
    }
    list + "or nothing"
}

#[cfg(test)]
mod tests {
    use super::super::super::parse;
    use super::*;

    #[test]
    fn every_suggested_option_can_be_parsed() {
        let complete = [
            "10/s",
            "10/s burst 5",
            "10/s burst 5 start empty",
            "10/s start empty",
            "10/s paced",
            "10/s fixed",
            "10/s fixed from first",
            "1/day calendar",
            "10/s sliding",
            "10/s leaky",
            "10/s leaky capacity 5",
            "10/s queue wait 1s",
            "10/s queue wait 1s capacity 5",
            "10/s smooth",
            "10/s warmup 1s",
            "concurrency 5 lease 1s",
            "10r/s",
            "10r/s burst=5",
            "10r/s nodelay",
            "10r/s delay=5 burst=5",
        ];
        for rule in complete {
            let kind = parse::parse(rule).expect(rule);
            let text = format!("{rule} 7");
            let last = super::super::words::Words::new(&text).last().expect("there is a 7");
            for option in open(&kind, last) {
                let option = option
                    .replace("<instant>", "2024-01-01T00:00:00Z")
                    .replace("<time zone>", "Asia/Shanghai")
                    .replace('N', "5")
                    .replace('T', "5s")
                    .replace("01-015s", "01-01T");
                // Only a calendar has calendar units, and every unit below is one.
                let longer = format!("{} {option}", rule.replace("10/s", "10/min"));
                assert!(parse::parse(&longer).is_ok(), "{longer}");
            }
        }
    }
}
