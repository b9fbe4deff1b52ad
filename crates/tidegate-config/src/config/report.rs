//! The errors of one file, gathered with their places.
//!
//! Always   All of them are gathered, so that a file is mended in one go; but a file made of errors is not
//!          answered with a book ([`ERRORS_MAX`]), and a line without an end is not repeated whole.
//!          Lines that hold secrets are never shown.

use super::read::too_large;
use super::source::{SOURCE_BYTES_MAX, Sources, bytes_of};
use super::{Config, ConfigError, ConfigErrors};
use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;

/// So many errors are told; how many more there are is told as a number.
const ERRORS_MAX: usize = 50;
/// Of a line, so many characters before the place and after its beginning are shown.
const EXCERPT_CHARS_MAX: usize = 80;

/// A text, and what has been found wrong with it.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
    found: RefCell<Found>,
    sources: RefCell<Sources>,
}

#[derive(Debug, Default)]
struct Found {
    /// By the byte where each begins.
    errors: Vec<(usize, ConfigError)>,
    untold: usize,
    /// What is no error, and may be a mistake all the same.
    warnings: Vec<ConfigError>,
}

/// What is wrong at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    message: String,
    hint: Option<String>,
}

impl Wrong {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// With a hint, if there is one.
    pub(super) fn maybe(self, hint: Option<String>) -> Self {
        Self { hint, ..self }
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(text: &'a str, file: &'a str, sources: Sources) -> Self {
        Self { file, text, found: RefCell::default(), sources: RefCell::new(sources) }
    }

    /// The contents of another file that belongs to the configuration, or why there are none.
    pub(super) fn contents_of(&self, path: &Path) -> Result<Vec<u8>, String> {
        // A directory opens, too.
        let read =
            if path.is_dir() { return Err("is not a file".to_owned()) } else { bytes_of(path) };
        self.sources.borrow_mut().note(path, read.as_deref().ok());
        let bytes = read.map_err(|error| format!("cannot be read: {error}"))?;
        if bytes.len() > SOURCE_BYTES_MAX { Err(too_large()) } else { Ok(bytes) }
    }

    /// Tells that something about these bytes is no error, and may be a mistake. The line is not shown.
    pub(super) fn warn(&self, span: Range<usize>, wrong: Wrong) {
        let mut found = self.found.borrow_mut();
        if found.warnings.len() < ERRORS_MAX {
            found.warnings.push(self.error(span, wrong, false));
        }
    }

    /// Whether nothing more will be told: then nothing has to be made up for a hint.
    pub(super) fn is_full(&self) -> bool {
        self.found.borrow().errors.len() >= ERRORS_MAX
    }

    /// Tells that something is wrong with these bytes.
    pub(super) fn tell(&self, span: Range<usize>, wrong: Wrong) {
        self.add(span, wrong, true);
    }

    /// The same, without showing the line.
    pub(super) fn tell_secretly(&self, span: Range<usize>, wrong: Wrong) {
        self.add(span, wrong, false);
    }

    fn add(&self, span: Range<usize>, wrong: Wrong, may_show: bool) {
        if self.is_full() {
            self.found.borrow_mut().untold += 1;
            return;
        }
        let error = self.error(span.clone(), wrong, may_show);
        self.found.borrow_mut().errors.push((span.start, error));
    }

    fn error(&self, span: Range<usize>, wrong: Wrong, may_show: bool) -> ConfigError {
        let place = Place::new(self.text, span);
        let excerpt = (may_show && !place.is_secret()).then(|| place.excerpt());
        ConfigError {
            file: self.file.to_owned(),
            line: place.line,
            column: place.column,
            message: wrong.message,
            hint: wrong.hint,
            excerpt,
            indent: place.indent(),
        }
    }

    /// The configuration that was read, if nothing was wrong.
    pub(super) fn close(self, config: Config) -> Result<Config, ConfigErrors> {
        let Found { mut errors, untold, warnings } = self.found.into_inner();
        let sources = self.sources.into_inner();
        if errors.is_empty() {
            return Ok(Config { warnings, sources, ..config });
        }
        errors.sort_by_key(|(start, _)| *start);
        let mut errors: Vec<ConfigError> = errors.into_iter().map(|(_, error)| error).collect();
        if untold > 0 {
            errors.push(ConfigError::whole(self.file, format!("and {untold} more errors")));
        }
        Err(ConfigErrors { errors, is_unreadable: false, sources })
    }
}

/// Some bytes of a text, as people see them.
struct Place<'a> {
    line: usize,
    /// In characters, from one.
    column: usize,
    /// The line before the place, the place as far as it is on that line, and the rest of the line.
    before: &'a str,
    meant: &'a str,
    after: &'a str,
}

impl<'a> Place<'a> {
    fn new(text: &'a str, span: Range<usize>) -> Self {
        let start = floor_char(text, span.start);
        let end = floor_char(text, span.end.max(start));
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
        let end = end.min(line_end);
        let before = &text[line_start..start];
        Self {
            line: text[..start].matches('\n').count() + 1,
            column: before.chars().count() + 1,
            before,
            meant: &text[start..end],
            after: text[end..line_end].trim_end_matches('\r'),
        }
    }

    fn is_secret(&self) -> bool {
        let line = self.before.trim_start();
        let line = if line.is_empty() { self.meant } else { line };
        let words = ["token", "admin_token", "auth", "server.auth"];
        words.iter().any(|word| line.starts_with(word)) || self.has_password()
    }

    /// Whether an address with a password may stand in the line, in a file that is no TOML.
    fn has_password(&self) -> bool {
        let line = [self.before, self.meant, self.after].concat();
        let has = |address: &str| address.contains('@') || address.contains("sentinel=");
        line.split_once("://").is_some_and(|(_, address)| has(address))
    }

    /// The line, or as much of it as fits; and how wide the place is in it.
    fn excerpt(&self) -> (String, usize) {
        let skipped = (self.column - 1).saturating_sub(EXCERPT_CHARS_MAX);
        let before = self.before.chars().skip(skipped);
        let rest = self.meant.chars().chain(self.after.chars()).take(EXCERPT_CHARS_MAX);
        let width = self.meant.chars().count().min(EXCERPT_CHARS_MAX);
        (before.chain(rest).map(printable).collect(), width)
    }

    fn indent(&self) -> usize {
        (self.column - 1).min(EXCERPT_CHARS_MAX)
    }
}

/// The nearest beginning of a character at or before this byte.
fn floor_char(text: &str, byte: usize) -> usize {
    (0..=byte.min(text.len())).rev().find(|byte| text.is_char_boundary(*byte)).unwrap_or(0)
}

/// What a terminal would obey is not shown to it.
fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}
