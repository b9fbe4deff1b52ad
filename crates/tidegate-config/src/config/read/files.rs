//! Files that a configuration names. Paths are relative to its directory; the files are read together with it.

use super::report::Problem;
use super::value::{Text, Value};
use crate::config::server::Token;
use crate::config::source::text_of;
use std::path::{Path, PathBuf};

/// Maximum number of tokens in a file.
pub(super) const TOKENS_MAX: usize = 1_000;

/// A file that the configuration names, and its contents.
#[derive(Debug)]
pub(super) struct NamedFile<'a> {
    text: Text<'a>,
    pub(super) path: PathBuf,
    pub(super) contents: Vec<u8>,
}

impl<'a> NamedFile<'a> {
    /// Reads the file, and reports an error if that fails.
    pub(super) fn read(value: &Value<'a>, directory: &Path) -> Option<Self> {
        let text = value.text()?;
        let path = directory.join(text.read);
        match text.report().contents_of(&path) {
            Ok(contents) => Some(Self { text, path, contents }),
            Err(why) => unusable(&text, &path, &why),
        }
    }

    /// Reports an error in the contents of the file.
    pub(super) fn error(&self, what: &str) {
        self.text.error(Problem::new(format!("{} {what}", self.path.display())));
    }

    /// Warns if every user of the machine can read the file.
    #[cfg(unix)]
    pub(super) fn warn_if_open(&self) {
        use std::os::unix::fs::PermissionsExt;
        let metadata = std::fs::metadata(&self.path);
        let mode = metadata.map_or(0, |metadata| metadata.permissions().mode());
        if mode & 0o007 != 0 {
            let path = self.path.display();
            let problem = Problem::new(format!("every user of this machine can read {path}"));
            self.text.warn(problem.hint(format!("run `chmod o= {path}`")));
        }
    }

    /// Does nothing: other systems have no such permissions.
    #[cfg(not(unix))]
    pub(super) fn warn_if_open(&self) {}
}

/// Returns the path of a file to write, and reports an error if its directory does not exist.
pub(super) fn writable(value: &Value<'_>, directory: &Path) -> Option<PathBuf> {
    let text = value.text()?;
    let path = directory.join(text.read);
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return unusable(&text, &path, "is not a file name"),
    };
    if path.is_dir() || path.file_name().is_none() {
        return unusable(&text, &path, "is a directory");
    }
    if !parent.is_dir() {
        return unusable(&text, &path, "cannot be written: its directory does not exist");
    }
    Some(path)
}

fn unusable<T>(text: &Text<'_>, path: &Path, what: &str) -> Option<T> {
    let problem = Problem::new(format!("{} {what}", path.display()));
    text.error(problem.hint("paths are relative to the directory of the configuration file"));
    None
}

/// Reads tokens from a file: one per line, without empty lines and lines that start with `#`.
pub(super) fn tokens(value: &Value<'_>, directory: &Path) -> Vec<Token> {
    let Some(file) = NamedFile::read(value, directory) else { return Vec::new() };
    let text = match text_of(file.contents.clone()) {
        Ok(text) => text,
        Err(why) => return no_tokens(&file, &why),
    };
    let lines = text.lines().map(str::trim).enumerate();
    let lines: Vec<_> = lines.filter(|(_, l)| !l.is_empty() && !l.starts_with('#')).collect();
    if lines.is_empty() || lines.len() > TOKENS_MAX {
        return no_tokens(&file, &format!("must have 1 to {TOKENS_MAX} tokens, one per line"));
    }
    if let Some((index, _)) = lines.iter().find(|(_, token)| !is_token(token)) {
        let line = index + 1;
        return no_tokens(&file, &format!("has an invalid token in line {line}: {INVALID_TOKEN}"));
    }
    file.warn_if_open();
    lines.into_iter().map(|(_, token)| Token::new(token)).collect()
}

fn no_tokens(file: &NamedFile<'_>, what: &str) -> Vec<Token> {
    file.error(what);
    Vec::new()
}

/// What a token must look like, for an error message.
pub(super) const INVALID_TOKEN: &str =
    "a token has no spaces and no control characters, and a comment needs a line of its own";

/// Returns whether clients can send this token in `Authorization: Bearer`.
pub(super) fn is_token(text: &str) -> bool {
    !text.chars().any(|c| c.is_whitespace() || c.is_control())
}
