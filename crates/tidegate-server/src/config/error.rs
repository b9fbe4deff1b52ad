//! What is wrong with a configuration: where, what, and what to do.

use std::fmt;

/// Everything that is wrong with one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// At least one.
    pub errors: Vec<ConfigError>,
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
    pub(crate) fn whole(file: &std::path::Path, message: String) -> Self {
        Self { errors: vec![super::report::whole_file(&file.display().to_string(), message)] }
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
