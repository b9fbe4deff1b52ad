//! What was written after `--` on the command line.
//!
//! Always   An option or a word that nobody knows is an error: a filter with a typing error would
//!          otherwise measure everything, or nothing.

use std::collections::BTreeMap;

/// What a bench understands.
pub struct Known {
    /// Options without a value, like `--quick`.
    pub flags: &'static [&'static str],
    /// Options with a value, like `--svg`.
    pub options: &'static [&'static str],
    /// Words that choose what is measured.
    pub words: &'static [&'static str],
}

/// What somebody wrote.
#[derive(Debug, Default)]
pub struct Arguments {
    flags: Vec<String>,
    options: BTreeMap<String, String>,
    words: Vec<String>,
}

impl Arguments {
    /// The arguments of this process.
    pub fn of_process(known: &Known) -> Result<Self, String> {
        Self::parse(known, std::env::args().skip(1))
    }

    fn parse(known: &Known, arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self::default();
        // Cargo adds `--bench`, or `--test` if it only wants to see that the bench starts.
        let ours = |argument: &String| argument != "--bench";
        let mut arguments = arguments.filter(ours);
        while let Some(argument) = arguments.next() {
            let name = argument.as_str();
            if name == "--test" || known.flags.contains(&name) {
                parsed.flags.push(argument);
            } else if known.options.contains(&name) {
                let value = arguments.next().ok_or(format!("{name} needs a value"))?;
                parsed.options.insert(argument, value);
            } else if known.words.contains(&name) {
                parsed.words.push(argument);
            } else {
                return Err(known.refuse(name));
            }
        }
        Ok(parsed)
    }

    /// Cargo wants to see that the bench starts, and no measurement.
    pub fn is_test(&self) -> bool {
        self.has("--test")
    }

    /// Whether the option was written.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|written| written == flag)
    }

    /// What was written after the option.
    pub fn value(&self, option: &str) -> Option<&str> {
        self.options.get(option).map(String::as_str)
    }

    /// Whether something with these words is asked for: all that were written are among them.
    pub fn wants(&self, words: &[&str]) -> bool {
        self.words.iter().all(|word| words.contains(&word.as_str()))
    }

    /// Whether a peer is asked for: its name begins with one in `--against`, or there is none.
    pub fn wants_peer(&self, name: &str) -> bool {
        self.value("--against").is_none_or(|all| all.split(',').any(|peer| name.starts_with(peer)))
    }
}

impl Known {
    fn refuse(&self, argument: &str) -> String {
        let flags = self.flags.iter().map(|flag| (*flag).to_owned());
        let options = self.options.iter().map(|option| format!("{option} <value>"));
        let words = self.words.iter().map(|word| (*word).to_owned());
        let all: Vec<String> = flags.chain(options).chain(words).collect();
        format!("`{argument}` is none of: {}", all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Known =
        Known { flags: &["--quick"], options: &["--against"], words: &["1M", "10M", "string"] };

    fn parse(line: &str) -> Result<Arguments, String> {
        Arguments::parse(&KNOWN, line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn all_words_must_be_there() {
        let arguments = parse("1M string --bench").unwrap();
        assert!(arguments.wants(&["1M", "uniform", "string"]));
        assert!(!arguments.wants(&["10M", "uniform", "string"]));
        assert!(!arguments.wants(&["1M", "uniform", "u64"]));
        assert!(parse("").unwrap().wants(&["1M"]));
    }

    #[test]
    fn a_typing_error_is_told_what_there_is() {
        let message = parse("1m").unwrap_err();
        assert_eq!(message, "`1m` is none of: --quick, --against <value>, 1M, 10M, string");
        assert_eq!(parse("--against").unwrap_err(), "--against needs a value");
    }

    #[test]
    fn a_peer_is_chosen_by_how_its_name_begins() {
        let arguments = parse("--quick --against governor,throttle").unwrap();
        assert!(arguments.has("--quick"));
        assert!(arguments.wants_peer("governor"));
        assert!(arguments.wants_peer("throttlecrab periodic"));
        assert!(!arguments.wants_peer("limitador"));
        assert!(parse("").unwrap().wants_peer("limitador"));
    }
}
