//! What is wrong with a configuration: where, what, and what to do.

use super::source::Sources;
use std::fmt;
use std::path::Path;

/// Everything that is wrong with one file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigErrors {
    /// At least one.
    pub errors: Vec<ConfigError>,
    /// Whether the file itself could not be read, so that nothing is known about what is in it.
    pub is_unreadable: bool,
    /// What was read until then: when it changes, it is worth another try.
    pub sources: Sources,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, as it was named.
    pub file: String,
    /// Counted from one; zero if the whole file is meant.
    pub line: usize,
    /// Counted from one, in characters.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The line, or what of it is around the place, and how many characters of it are meant.
    pub excerpt: Option<(String, usize)>,
    /// How many characters of the excerpt come before those that are meant.
    pub indent: usize,
}

impl ConfigErrors {
    /// One thing that is wrong with the whole file.
    pub fn whole(file: &Path, message: String) -> Self {
        Self {
            errors: vec![ConfigError::whole(&file.display().to_string(), message)],
            is_unreadable: false,
            sources: Sources::default(),
        }
    }

    /// The file is not there, or may not be read.
    pub(super) fn unreadable(file: &Path, error: &std::io::Error) -> Self {
        Self { is_unreadable: true, ..Self::whole(file, format!("cannot be read: {error}")) }
    }
}

impl ConfigError {
    /// An error that has no place.
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
