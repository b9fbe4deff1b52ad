//! The words of a text, each with its position, so that an error can point at it.

use super::{RuleError, RuleErrorKind};
use core::ops::Range;

type Result<T> = core::result::Result<T, RuleError>;

/// A word and its position.
#[derive(Clone, Copy)]
pub(in crate::rule) struct Word<'t> {
    whole: &'t str,
    start: usize,
    pub(in crate::rule) text: &'t str,
}

impl<'t> Word<'t> {
    pub(in crate::rule) fn error(self, kind: RuleErrorKind) -> RuleError {
        RuleError::new(self.whole, self.span(), kind)
    }

    fn span(self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    /// Returns the digits at the start of the word.
    pub(in crate::rule) fn digits(self) -> Self {
        let end = self.text.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.text.len());
        Self { text: &self.text[..end], ..self }
    }

    /// Returns the rest of the word from the byte at `at`.
    pub(in crate::rule) fn from(self, at: usize) -> Self {
        Self { start: self.start + at, text: &self.text[at..], ..self }
    }

    /// Returns the parts before and after the byte at `at`.
    pub(in crate::rule) fn split(self, at: usize) -> (Self, Self) {
        (Self { text: &self.text[..at], ..self }, self.from(at + 1))
    }

    /// Returns the words before this one.
    pub(in crate::rule) fn before(self) -> Words<'t> {
        Words { text: &self.whole[..self.start], at: 0 }
    }

    /// Returns the words after this one.
    pub(in crate::rule) fn after(self) -> Words<'t> {
        Words { text: self.whole, at: self.span().end }
    }

    /// Returns the text from the last space before the end of this word: the whole word of which this is a part.
    pub(in crate::rule) fn unbroken(self) -> &'t str {
        let end = self.span().end;
        let start = self.whole[..end].rfind(|c: char| c.is_ascii_whitespace());
        &self.whole[start.map_or(0, |at| at + 1)..end]
    }

    /// Returns the text from the first byte of the word to the end.
    pub(in crate::rule) fn onwards(self) -> &'t str {
        &self.whole[self.start..]
    }
}

/// An iterator of the words from left to right.
pub(in crate::rule) struct Words<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Words<'t> {
    pub(in crate::rule) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    pub(in crate::rule) fn peek(&self) -> Option<Word<'t>> {
        let rest = &self.text[self.at..];
        let start = self.at + rest.find(|c: char| !c.is_ascii_whitespace())?;
        let rest = &self.text[start..];
        let length = rest.find(|c: char| c.is_ascii_whitespace()).unwrap_or(rest.len());
        Some(Word { whole: self.text, start, text: &rest[..length] })
    }

    /// Takes the next word if it is `wanted`, and returns whether it was.
    pub(in crate::rule) fn take(&mut self, wanted: &str) -> bool {
        let found = self.peek().is_some_and(|word| word.text == wanted);
        if found {
            self.next();
        }
        found
    }

    pub(in crate::rule) fn needed(&mut self, expected: &'static str) -> Result<Word<'t>> {
        let end = self.text.len();
        self.next().ok_or_else(|| {
            RuleError::new(self.text, end..end, RuleErrorKind::Unfinished { expected })
        })
    }

    /// Takes `name value`, if the next word is the name.
    pub(in crate::rule) fn option<T>(
        &mut self,
        name: &str,
        what: &'static str,
        read: impl FnOnce(Word<'t>, &'static str) -> Result<T>,
    ) -> Result<Option<T>> {
        if !self.take(name) {
            return Ok(None);
        }
        let word = self.needed("a value")?;
        read(word, what).map(Some)
    }

    /// Takes an option that may come in any order into `option`, and returns whether it did.
    pub(in crate::rule) fn set<T>(
        &mut self,
        option: &mut Option<T>,
        name: &str,
        what: &'static str,
        read: impl FnOnce(Word<'t>, &'static str) -> Result<T>,
    ) -> Result<bool> {
        let word = self.peek();
        let Some(value) = self.option(name, what, read)? else { return Ok(false) };
        match (option.replace(value), word) {
            (Some(_), Some(word)) => Err(word.error(RuleErrorKind::Repeated)),
            _ => Ok(true),
        }
    }
}

impl<'t> Iterator for Words<'t> {
    type Item = Word<'t>;

    fn next(&mut self) -> Option<Word<'t>> {
        let word = self.peek()?;
        self.at = word.span().end;
        Some(word)
    }
}
