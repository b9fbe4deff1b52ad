//! Parses the arguments after `--` on the command line of a bench.
//!
//! Always   An unknown option or word is an error: with a typing error in a filter, the bench would otherwise measure
//!          everything or nothing.

use std::collections::BTreeMap;
use std::process::ExitCode;

/// The arguments that a bench accepts.
pub struct Syntax {
    /// Options without a value, like `--quick`.
    pub flags: &'static [&'static str],
    /// Options with a value, like `--svg`.
    pub options: &'static [&'static str],
    /// Words that select what is measured.
    pub words: &'static [&'static str],
}

/// The parsed arguments.
#[derive(Debug, Default)]
pub struct Arguments {
    flags: Vec<String>,
    options: BTreeMap<String, String>,
    words: Vec<String>,
}

impl Arguments {
    /// The main function of a bench: parses the arguments of this process, and measures unless `cargo test` has started it.
    #[expect(clippy::print_stderr, reason = "it is the error of the program")]
    pub fn run(known: &Syntax, measure: impl FnOnce(&Self) -> Result<(), String>) -> ExitCode {
        let parsed = Self::parse(known, std::env::args().skip(1));
        let measured = parsed.map_err(|message| (message, 2)).and_then(|arguments| {
            // `cargo test` passes `--test`.
            if arguments.has("--test") {
                return Ok(());
            }
            measure(&arguments).map_err(|message| (message, 1))
        });
        match measured {
            Ok(()) => ExitCode::SUCCESS,
            Err((message, code)) => {
                eprintln!("error: {message}");
                ExitCode::from(code)
            }
        }
    }

    fn parse(known: &Syntax, arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self::default();
        // `cargo bench` adds `--bench`.
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

    /// Returns whether the option is present.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|written| written == flag)
    }

    /// Returns the value of the option, if it is present.
    pub fn value(&self, option: &str) -> Option<&str> {
        self.options.get(option).map(String::as_str)
    }

    /// Returns whether a measurement with these words is selected: every word on the command line is among them.
    pub fn wants(&self, words: &[&str]) -> bool {
        self.words.iter().all(|word| words.contains(&word.as_str()))
    }

    /// Returns whether a peer is selected: its name starts with one in `--against`, or the option is absent.
    pub fn wants_peer(&self, name: &str) -> bool {
        self.value("--against").is_none_or(|all| all.split(',').any(|peer| name.starts_with(peer)))
    }
}

impl Syntax {
    fn refuse(&self, argument: &str) -> String {
        let flags = self.flags.iter().map(|flag| (*flag).to_owned());
        let options = self.options.iter().map(|option| format!("{option} <value>"));
        let words = self.words.iter().map(|word| (*word).to_owned());
        let all: Vec<String> = flags.chain(options).chain(words).collect();
        format!("unknown argument `{argument}`; use: {}", all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Syntax =
        Syntax { flags: &["--quick"], options: &["--against"], words: &["1M", "10M", "string"] };

    fn parse(line: &str) -> Result<Arguments, String> {
        Arguments::parse(&KNOWN, line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_measurement_must_have_all_words() {
        let arguments = parse("1M string --bench").unwrap();
        assert!(arguments.wants(&["1M", "uniform", "string"]));
        assert!(!arguments.wants(&["10M", "uniform", "string"]));
        assert!(!arguments.wants(&["1M", "uniform", "u64"]));
        assert!(parse("").unwrap().wants(&["1M"]));
    }

    #[test]
    fn an_unknown_argument_is_answered_with_the_known_ones() {
        let message = parse("1m").unwrap_err();
        assert_eq!(
            message,
            "unknown argument `1m`; use: --quick, --against <value>, 1M, 10M, string"
        );
        assert_eq!(parse("--against").unwrap_err(), "--against needs a value");
    }

    #[test]
    fn a_peer_is_selected_by_the_start_of_its_name() {
        let arguments = parse("--quick --against governor,throttle").unwrap();
        assert!(arguments.has("--quick"));
        assert!(arguments.wants_peer("governor"));
        assert!(arguments.wants_peer("throttlecrab periodic"));
        assert!(!arguments.wants_peer("limitador"));
        assert!(parse("").unwrap().wants_peer("limitador"));
    }
}
