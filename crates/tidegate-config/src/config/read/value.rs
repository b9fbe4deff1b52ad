//! A value of the file, read as the type that its key needs.
//!
//! Always   A method returns `None` exactly if it has reported an error.

use super::duration;
use super::report::{Problem, Report};
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;
use tidegate_core::diagnostics::nearest_name;
use toml::Spanned;
use toml::de::{DeInteger, DeValue};

/// A value, and the name of its key.
#[derive(Clone, Debug)]
pub(super) struct Value<'a> {
    pub(super) report: &'a Report<'a>,
    pub(super) name: &'a str,
    pub(super) read: &'a DeValue<'a>,
    pub(super) span: Range<usize>,
    pub(super) is_secret: bool,
}

/// A text of the file.
#[derive(Clone, Debug)]
pub(super) struct Text<'a> {
    report: &'a Report<'a>,
    pub(super) read: &'a str,
    span: Range<usize>,
    is_secret: bool,
}

impl<'a> Value<'a> {
    /// Reports an error.
    pub(super) fn error(&self, problem: Problem) {
        if self.is_secret {
            self.report.error_without_excerpt(self.span.clone(), problem);
        } else {
            self.report.error(self.span.clone(), problem);
        }
    }

    /// Reports that the value has the wrong type.
    pub(super) fn expect(&self, expected: &str) {
        let found = match self.read {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.error(Problem::new(format!("`{}` must be {expected}, not {found}", self.name)));
    }

    pub(super) fn text(&self) -> Option<Text<'a>> {
        self.text_or("a text in quotes")
    }

    fn text_or(&self, expected: &str) -> Option<Text<'a>> {
        let DeValue::String(text) = self.read else {
            self.expect(expected);
            return None;
        };
        let Self { report, is_secret, .. } = *self;
        Some(Text { report, read: text, span: self.span.clone(), is_secret })
    }

    pub(super) fn flag(&self) -> Option<bool> {
        let flag = self.read.as_bool();
        if flag.is_none() {
            self.expect("true or false");
        }
        flag
    }

    pub(super) fn whole(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let DeValue::Integer(integer) = self.read else {
            self.expect("a whole number");
            return None;
        };
        let number = parse(integer).filter(|number| range.contains(number));
        if number.is_none() {
            self.out_of(range.start(), range.end());
        }
        number
    }

    /// Reads a whole number in this range, as a size in memory.
    pub(super) fn size(&self, range: RangeInclusive<u64>) -> Option<usize> {
        self.whole(range).and_then(|number| usize::try_from(number).ok())
    }

    pub(super) fn duration(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        let text = self.text_or("a text with a unit, such as \"10s\"")?;
        let duration = match duration::read(text.read) {
            Ok(duration) => duration,
            Err(problem) => {
                text.error(problem);
                return None;
            }
        };
        if !range.contains(&duration) {
            self.out_of(&duration::show(*range.start()), &duration::show(*range.end()));
            return None;
        }
        Some(duration)
    }

    fn out_of(&self, least: &dyn Display, most: &dyn Display) {
        self.error(Problem::new(format!("`{}` must be from {least} to {most}", self.name)));
    }

    /// Reads one of these words.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let chosen = choices.iter().find(|(word, _)| *word == text.read);
        if chosen.is_none() {
            let words: Vec<String> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
            let near = nearest_name(text.read, choices.iter().map(|(word, _)| *word));
            text.error(
                Problem::new(format!("`{}` must be {}", self.name, words.join(" or ")))
                    .maybe(near.map(|near| format!("did you mean {near:?}?"))),
            );
        }
        chosen.map(|(_, chosen)| *chosen)
    }

    pub(super) fn is_table(&self) -> bool {
        matches!(self.read, DeValue::Table(_))
    }

    /// Reads a list of at most `most` values.
    pub(super) fn list(&self, most: usize) -> Option<Vec<Value<'a>>> {
        let DeValue::Array(array) = self.read else {
            self.expect("a list");
            return None;
        };
        if array.len() > most {
            self.error(Problem::new(format!("`{}` must have at most {most} entries", self.name)));
            return None;
        }
        Some(array.iter().map(|value| self.inner(value)).collect())
    }

    fn inner(&self, value: &'a Spanned<DeValue<'a>>) -> Value<'a> {
        Value { read: value.get_ref(), span: value.span(), ..self.clone() }
    }

    /// Reads a list of texts. Reports each value that is not a text, and leaves it out.
    pub(super) fn texts(&self, most: usize) -> Vec<Text<'a>> {
        self.list(most).unwrap_or_default().iter().filter_map(Value::text).collect()
    }

    pub(super) fn is_empty_list(&self) -> bool {
        matches!(self.read, DeValue::Array(array) if array.is_empty())
    }

    /// Reads a text or a list of texts.
    pub(super) fn text_or_texts(&self, most: usize) -> Vec<Text<'a>> {
        match self.read {
            DeValue::Array(_) => self.texts(most),
            _ => self.text_or("a text or a list of texts").into_iter().collect(),
        }
    }
}

fn parse(integer: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

impl<'a> Text<'a> {
    pub(super) fn report(&self) -> &'a Report<'a> {
        self.report
    }

    /// Adds a warning.
    pub(super) fn warn(&self, problem: Problem) {
        self.report.warn(self.span.clone(), problem);
    }

    /// Reports an error.
    pub(super) fn error(&self, problem: Problem) {
        self.error_at(self.span.clone(), problem);
    }

    /// Reports an error in some bytes of the text; in the whole text, if the file writes it with escapes.
    pub(super) fn error_inside(&self, inside: Range<usize>, problem: Problem) {
        let spelled = self.report.text.get(self.span.clone()).unwrap_or_default();
        let span = match spelled.find(self.read) {
            Some(quotes) if !self.read.is_empty() => {
                let start = self.span.start + quotes;
                start + inside.start..start + inside.end
            }
            _ => self.span.clone(),
        };
        self.error_at(span, problem);
    }

    fn error_at(&self, span: Range<usize>, problem: Problem) {
        if self.is_secret {
            self.report.error_without_excerpt(span, problem);
        } else {
            self.report.error(span, problem);
        }
    }
}
