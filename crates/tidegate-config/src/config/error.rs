//! The errors of a configuration: where, what is wrong, and what to do.

use super::source::Sources;
use std::fmt;
use std::path::Path;

/// All errors of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigErrors {
    /// The errors; at least one.
    pub errors: Vec<ConfigError>,
    /// Whether the file itself could not be read.
    pub is_unreadable: bool,
    /// The files that were read before the error. A server that watches its files tries again when one of them changes.
    pub sources: Sources,
}

/// One error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The path of the file, as the caller wrote it.
    pub file: String,
    /// The line, counted from one; zero for an error of the whole file.
    pub line: usize,
    /// The column in characters, counted from one.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The line, or the part of it around the error, and the number of characters to underline.
    pub excerpt: Option<(String, usize)>,
    /// The number of characters of the excerpt before the underlined ones.
    pub indent: usize,
}

impl ConfigErrors {
    /// Returns one error of the whole file.
    pub fn whole(file: &Path, message: String) -> Self {
        Self {
            errors: vec![ConfigError::whole(&file.display().to_string(), message)],
            is_unreadable: false,
            sources: Sources::default(),
        }
    }

    /// Returns the error of a file that is missing or not readable.
    pub(super) fn unreadable(file: &Path, error: &std::io::Error) -> Self {
        Self { is_unreadable: true, ..Self::whole(file, format!("cannot be read: {error}")) }
    }
}

impl ConfigError {
    /// Returns an error without a line.
    pub(super) fn whole(file: &str, message: String) -> Self {
        Self {
            file: file.to_owned(),
            line: 0,
            column: 0,
            message,
            hint: None,
            excerpt: None,
            indent: 0,
        }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, error) in self.errors.iter().enumerate() {
            if place > 0 {
                f.write_str("\n\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message, .. } = self;
        if *line == 0 {
            write!(f, "{file}: {message}")?;
        } else {
            write!(f, "{file}:{line}:{column}: {message}")?;
        }
        if let Some((text, width)) = &self.excerpt {
            let (margin, marks) = (self.indent, (*width).max(1));
            write!(f, "\n  | {text}\n  | {:margin$}{}", "", "^".repeat(marks))?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\n  = {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ConfigErrors {}
