//! Files that a configuration names: relative to its directory, and there when it is read.

use super::Token;
use super::read::text_of;
use super::report::Wrong;
use super::value::{Text, Value};
use std::path::{Path, PathBuf};

/// A file of tokens has no more of them.
pub(super) const TOKENS_MAX: usize = 1_000;

/// A file that the configuration names, and what is in it.
#[derive(Debug)]
pub(super) struct NamedFile<'a> {
    text: Text<'a>,
    pub(super) path: PathBuf,
    pub(super) contents: Vec<u8>,
}

impl<'a> NamedFile<'a> {
    /// Reads it; it is told if it cannot be read.
    pub(super) fn read(value: &Value<'a>, directory: &Path) -> Option<Self> {
        let text = value.text()?;
        let path = directory.join(text.read);
        match text.report().contents_of(&path) {
            Ok(contents) => Some(Self { text, path, contents }),
            Err(why) => tell(&text, &path, &why),
        }
    }

    /// Tells that something is wrong with what is in it.
    pub(super) fn tell(&self, what: &str) {
        self.text.tell(Wrong::new(format!("{} {what}", self.path.display())));
    }

    /// Warns if users of the machine can read it who are neither its owner nor of its group.
    #[cfg(unix)]
    pub(super) fn warn_if_open(&self) {
        use std::os::unix::fs::PermissionsExt;
        let metadata = std::fs::metadata(&self.path);
        let mode = metadata.map_or(0, |metadata| metadata.permissions().mode());
        if mode & 0o007 != 0 {
            let path = self.path.display();
            let wrong = Wrong::new(format!("every user of this machine can read {path}"));
            self.text.warn(wrong.hint(format!("run `chmod o= {path}`")));
        }
    }

    /// Other systems have no such permissions.
    #[cfg(not(unix))]
    pub(super) fn warn_if_open(&self) {}
}

/// A file that may be written: its directory is there.
pub(super) fn writable(value: &Value<'_>, directory: &Path) -> Option<PathBuf> {
    let text = value.text()?;
    let path = directory.join(text.read);
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return tell(&text, &path, "is not the name of a file"),
    };
    if path.is_dir() || path.file_name().is_none() {
        return tell(&text, &path, "is a directory");
    }
    if !parent.is_dir() {
        return tell(&text, &path, "cannot be written: its directory does not exist");
    }
    Some(path)
}

fn tell<T>(text: &Text<'_>, path: &Path, what: &str) -> Option<T> {
    let wrong = Wrong::new(format!("{} {what}", path.display()));
    text.tell(wrong.hint("relative paths begin at the configuration file's directory"));
    None
}

/// Tokens, one a line. Empty lines, and lines that begin with `#`, have none.
pub(super) fn tokens(value: &Value<'_>, directory: &Path) -> Vec<Token> {
    let Some(file) = NamedFile::read(value, directory) else { return Vec::new() };
    let text = match text_of(file.contents.clone()) {
        Ok(text) => text,
        Err(why) => return told(&file, &why),
    };
    let lines = text.lines().map(str::trim).enumerate();
    let lines: Vec<_> = lines.filter(|(_, l)| !l.is_empty() && !l.starts_with('#')).collect();
    if lines.is_empty() || lines.len() > TOKENS_MAX {
        return told(&file, &format!("must have from 1 to {TOKENS_MAX} tokens, one a line"));
    }
    if let Some((place, _)) = lines.iter().find(|(_, token)| !is_token(token)) {
        let line = place + 1;
        return told(&file, &format!("has no token in line {line}: {NO_TOKEN}"));
    }
    file.warn_if_open();
    lines.into_iter().map(|(_, token)| Token::new(token)).collect()
}

fn told(file: &NamedFile<'_>, what: &str) -> Vec<Token> {
    file.tell(what);
    Vec::new()
}

/// Why something is not a token.
pub(super) const NO_TOKEN: &str =
    "a token has no spaces and no control characters, and a comment needs a line of its own";

/// Whether clients can send it: a field of HTTP has no spaces at its ends, and `Authorization` none in the middle.
pub(super) fn is_token(text: &str) -> bool {
    !text.chars().any(|c| c.is_whitespace() || c.is_control())
}
