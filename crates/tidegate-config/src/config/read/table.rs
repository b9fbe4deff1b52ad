//! A table of the file.
//!
//! Always   Reading a key marks it as known. Keys that were not read are errors.

use super::report::{Problem, Report};
use super::value::Value;
use std::cell::RefCell;
use std::ops::Range;
use tidegate_core::diagnostics::nearest_name;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// For longer names, no similar name is suggested.
const NEAR_BYTES_MAX: usize = 64;

/// A table, and the keys that were read.
#[derive(Debug)]
pub(super) struct Table<'a> {
    report: &'a Report<'a>,
    /// The name of the table in messages.
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

    /// Marks the table as secret: its lines are never shown.
    pub(super) fn secret(self) -> Self {
        Self { is_secret: true, ..self }
    }

    /// Returns the value of this key.
    pub(super) fn get(&self, name: &'static str) -> Option<Value<'a>> {
        self.known.borrow_mut().push(name);
        let (key, value) = self.read.get_key_value(name)?;
        Some(self.value(key, value))
    }

    /// Returns the value of this key, and reports an error if it is missing.
    pub(super) fn need(&self, name: &'static str, hint: &str) -> Option<Value<'a>> {
        let value = self.get(name);
        if value.is_none() {
            self.error(Problem::new(format!("`{name}` is missing")).hint(hint));
        }
        value
    }

    /// Reports an error of the whole table.
    pub(super) fn error(&self, problem: Problem) {
        self.report.error(self.span.clone(), problem);
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

    /// Returns all values with the spans of their keys, in the order of the file.
    pub(super) fn entries(&self) -> Vec<(Range<usize>, Value<'a>)> {
        let mut entries: Vec<_> =
            self.read.iter().map(|(key, value)| (key.span(), self.value(key, value))).collect();
        entries.sort_by_key(|(span, _)| span.start);
        entries
    }

    pub(super) fn report(&self) -> &'a Report<'a> {
        self.report
    }

    /// Reports an error for each key that was not read.
    pub(super) fn refuse_unknown(&self) {
        let known = self.known.borrow();
        let is_known = |name: &str| known.contains(&name);
        for (key, _) in self.read.iter().filter(|(key, _)| !is_known(key.get_ref())) {
            // Further errors are only counted, so the search for a hint would be wasted.
            let problem = if self.report.is_full() {
                Problem::new("unknown key")
            } else {
                unknown(self.name, key.get_ref(), &known)
            };
            if self.is_secret {
                self.report.error_without_excerpt(key.span(), problem);
            } else {
                self.report.error(key.span(), problem);
            }
        }
    }
}

impl<'a> Value<'a> {
    /// Reads a table.
    pub(super) fn table(&self) -> Option<Table<'a>> {
        let DeValue::Table(table) = self.read else {
            self.expect("a table");
            return None;
        };
        Some(Table::new(self.report, self.name, table, self.span.clone(), self.is_secret))
    }
}

fn unknown(table: &str, name: &str, known: &[&'static str]) -> Problem {
    let near =
        (name.len() <= NEAR_BYTES_MAX).then(|| nearest_name(name, known.iter().copied())).flatten();
    let hint = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the keys here are {}", known.join(", ")),
    };
    let name: String = name.chars().take(NEAR_BYTES_MAX).collect();
    Problem::new(format!("unknown key `{}` in {table}", name.escape_debug())).hint(hint)
}
