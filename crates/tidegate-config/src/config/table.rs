//! A table of the file. What is asked for is known; what is left over in the end is refused.

use super::near;
use super::report::{Report, Wrong};
use super::value::Value;
use std::cell::RefCell;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Names longer than this look like nothing else.
const NEAR_BYTES_MAX: usize = 64;

/// A table, and what has been asked of it.
#[derive(Debug)]
pub(super) struct Table<'a> {
    report: &'a Report<'a>,
    /// What it is called in messages.
    name: &'a str,
    read: &'a DeTable<'a>,
    span: Range<usize>,
    is_secret: bool,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Table<'a> {
    pub(super) fn new(
        report: &'a Report<'a>,
        name: &'a str,
        read: &'a DeTable<'a>,
        span: Range<usize>,
        is_secret: bool,
    ) -> Self {
        Self { report, name, read, span, is_secret, known: RefCell::default() }
    }

    /// A table whose lines are never shown.
    pub(super) fn secret(self) -> Self {
        Self { is_secret: true, ..self }
    }

    /// The value of this name, if there is one.
    pub(super) fn get(&self, name: &'static str) -> Option<Value<'a>> {
        self.known.borrow_mut().push(name);
        let (key, value) = self.read.get_key_value(name)?;
        Some(self.value(key, value))
    }

    /// The value of this name; it is told if there is none.
    pub(super) fn need(&self, name: &'static str, hint: &str) -> Option<Value<'a>> {
        let value = self.get(name);
        if value.is_none() {
            self.tell(Wrong::new(format!("`{name}` is missing")).hint(hint));
        }
        value
    }

    /// Tells that something is wrong with the whole of it.
    pub(super) fn tell(&self, wrong: Wrong) {
        self.report.tell(self.span.clone(), wrong);
    }

    fn value(&self, key: &'a Spanned<DeString<'a>>, value: &'a Spanned<DeValue<'a>>) -> Value<'a> {
        Value {
            report: self.report,
            name: key.get_ref(),
            read: value.get_ref(),
            span: value.span(),
            is_secret: self.is_secret,
        }
    }

    /// All that is in it with the places of their names, in the order of the file.
    pub(super) fn entries(&self) -> Vec<(Range<usize>, Value<'a>)> {
        let mut entries: Vec<_> =
            self.read.iter().map(|(key, value)| (key.span(), self.value(key, value))).collect();
        entries.sort_by_key(|(place, _)| place.start);
        entries
    }

    pub(super) fn report(&self) -> &'a Report<'a> {
        self.report
    }

    /// Refuses what was not asked for.
    pub(super) fn refuse_unknown(&self) {
        let known = self.known.borrow();
        let is_known = |name: &str| known.contains(&name);
        for (key, _) in self.read.iter().filter(|(key, _)| !is_known(key.get_ref())) {
            // A hint that nobody will see is not looked for.
            let wrong = if self.report.is_full() {
                Wrong::new("unknown key")
            } else {
                unknown(self.name, key.get_ref(), &known)
            };
            if self.is_secret {
                self.report.tell_secretly(key.span(), wrong);
            } else {
                self.report.tell(key.span(), wrong);
            }
        }
    }
}

fn unknown(table: &str, name: &str, known: &[&'static str]) -> Wrong {
    let near = (name.len() <= NEAR_BYTES_MAX).then(|| near(name, known.iter().copied())).flatten();
    let hint = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known here: {}", known.join(", ")),
    };
    let name: String = name.chars().take(NEAR_BYTES_MAX).collect();
    Wrong::new(format!("unknown key `{}` in {table}", name.escape_debug())).hint(hint)
}
