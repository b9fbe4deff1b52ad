//! Errors in a scenario: the position, and what was expected.

use std::fmt;

/// A scenario that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    page: String,
    line: usize,
    message: String,
}

impl ScenarioError {
    pub(super) fn new(page: &str, line: usize, message: impl Into<String>) -> Self {
        Self { page: page.to_owned(), line, message: message.into() }
    }

    /// The line of the page, counted from 1.
    pub fn line(&self) -> usize {
        self.line
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { page, line, message } = self;
        write!(f, "{page}:{line}: {message}")
    }
}

impl std::error::Error for ScenarioError {}
