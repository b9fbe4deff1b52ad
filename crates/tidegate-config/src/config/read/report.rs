//! Collects the errors of one file, with their lines.
//!
//! Always   All errors are collected, so that the user corrects a file in one go, up to [`ERRORS_MAX`].
//!          A long line is shown in part. A line with a secret is never shown.

use crate::config::error::{ConfigError, ConfigErrors};
use crate::config::source::{SOURCE_BYTES_MAX, Sources, bytes_of, too_large};
use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;

/// Maximum number of errors that are shown; further ones are only counted.
const ERRORS_MAX: usize = 50;
/// Maximum number of characters that an excerpt shows before the start of an error, and from there on.
const EXCERPT_CHARS_MAX: usize = 80;

/// A text, and the errors and warnings that were found in it.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
    findings: RefCell<Findings>,
    sources: RefCell<Sources>,
}

#[derive(Debug, Default)]
struct Findings {
    /// Each error with the byte at which it starts.
    errors: Vec<(usize, ConfigError)>,
    omitted: usize,
    warnings: Vec<ConfigError>,
}

/// What is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    message: String,
    hint: Option<String>,
}

impl Problem {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Adds a hint, if there is one.
    pub(super) fn maybe(self, hint: Option<String>) -> Self {
        Self { hint, ..self }
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(text: &'a str, file: &'a str, sources: Sources) -> Self {
        Self { file, text, findings: RefCell::default(), sources: RefCell::new(sources) }
    }

    /// Reads another file of the configuration, or returns why that is impossible.
    pub(super) fn contents_of(&self, path: &Path) -> Result<Vec<u8>, String> {
        // On Unix, opening a directory succeeds.
        let read =
            if path.is_dir() { return Err("is not a file".to_owned()) } else { bytes_of(path) };
        self.sources.borrow_mut().note(path, read.as_deref().ok());
        let bytes = read.map_err(|error| format!("cannot be read: {error}"))?;
        if bytes.len() > SOURCE_BYTES_MAX { Err(too_large()) } else { Ok(bytes) }
    }

    /// Adds a warning about these bytes. The line is not shown.
    pub(super) fn warn(&self, span: Range<usize>, problem: Problem) {
        let mut findings = self.findings.borrow_mut();
        if findings.warnings.len() < ERRORS_MAX {
            findings.warnings.push(self.located(span, problem, false));
        }
    }

    /// Returns whether further errors are only counted, so that they need no message.
    pub(super) fn is_full(&self) -> bool {
        self.findings.borrow().errors.len() >= ERRORS_MAX
    }

    /// Adds an error in these bytes.
    pub(super) fn error(&self, span: Range<usize>, problem: Problem) {
        self.add(span, problem, true);
    }

    /// Adds an error in these bytes, without showing the line.
    pub(super) fn error_without_excerpt(&self, span: Range<usize>, problem: Problem) {
        self.add(span, problem, false);
    }

    fn add(&self, span: Range<usize>, problem: Problem, may_show: bool) {
        if self.is_full() {
            self.findings.borrow_mut().omitted += 1;
            return;
        }
        let error = self.located(span.clone(), problem, may_show);
        self.findings.borrow_mut().errors.push((span.start, error));
    }

    fn located(&self, span: Range<usize>, problem: Problem, may_show: bool) -> ConfigError {
        let line_span = LineSpan::new(self.text, span);
        let excerpt = (may_show && !line_span.is_secret()).then(|| line_span.excerpt());
        ConfigError {
            file: self.file.to_owned(),
            line: line_span.line,
            column: line_span.column,
            message: problem.message,
            hint: problem.hint,
            excerpt,
            indent: line_span.indent(),
        }
    }

    /// Returns the warnings and the files that were read, if there are no errors.
    pub(super) fn close(self) -> Result<(Vec<ConfigError>, Sources), ConfigErrors> {
        let Findings { mut errors, omitted, warnings } = self.findings.into_inner();
        let sources = self.sources.into_inner();
        if errors.is_empty() {
            return Ok((warnings, sources));
        }
        errors.sort_by_key(|(start, _)| *start);
        let mut errors: Vec<ConfigError> = errors.into_iter().map(|(_, error)| error).collect();
        if omitted > 0 {
            errors.push(ConfigError::whole(self.file, format!("and {omitted} more errors")));
        }
        Err(ConfigErrors { errors, is_unreadable: false, sources })
    }
}

/// A span of a text, as line and column.
struct LineSpan<'a> {
    line: usize,
    /// In characters, counted from one.
    column: usize,
    /// The part of the line before the span.
    before: &'a str,
    /// The part of the span on this line.
    inside: &'a str,
    /// The rest of the line.
    after: &'a str,
}

impl<'a> LineSpan<'a> {
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
            inside: &text[start..end],
            after: text[end..line_end].trim_end_matches('\r'),
        }
    }

    fn is_secret(&self) -> bool {
        let line = self.before.trim_start();
        let line = if line.is_empty() { self.inside } else { line };
        let words = ["token", "admin_token", "auth", "server.auth"];
        words.iter().any(|word| line.starts_with(word)) || self.has_password()
    }

    /// Returns whether the line may contain a URL with a password. The file may not be TOML, so the line is searched as text.
    fn has_password(&self) -> bool {
        let line = [self.before, self.inside, self.after].concat();
        let has = |address: &str| address.contains('@') || address.contains("sentinel=");
        line.split_once("://").is_some_and(|(_, address)| has(address))
    }

    /// Returns the line or a part of it, and the number of characters of the span in it.
    fn excerpt(&self) -> (String, usize) {
        let skipped = (self.column - 1).saturating_sub(EXCERPT_CHARS_MAX);
        let before = self.before.chars().skip(skipped);
        let rest = self.inside.chars().chain(self.after.chars()).take(EXCERPT_CHARS_MAX);
        let width = self.inside.chars().count().min(EXCERPT_CHARS_MAX);
        (before.chain(rest).map(printable).collect(), width)
    }

    fn indent(&self) -> usize {
        (self.column - 1).min(EXCERPT_CHARS_MAX)
    }
}

/// Returns the start of the character that contains this byte.
fn floor_char(text: &str, byte: usize) -> usize {
    (0..=byte.min(text.len())).rev().find(|byte| text.is_char_boundary(*byte)).unwrap_or(0)
}

/// Replaces control characters, which a terminal would obey.
fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}
