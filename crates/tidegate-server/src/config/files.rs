//! Files that a configuration names: relative to its directory, and there when it is read.

use super::Token;
use super::read::text_of;
use super::report::Wrong;
use super::value::{Text, Value};
use std::path::{Path, PathBuf};

/// A file of tokens is no larger than this.
const TOKENS_BYTES_MAX: usize = 1 << 20;
/// And has no more tokens.
pub(super) const TOKENS_MAX: usize = 1_000;

/// A file that can be read.
pub(super) fn readable(value: &Value<'_>, directory: &Path) -> Option<PathBuf> {
    let text = value.text()?;
    let path = directory.join(text.text);
    // A directory opens, too.
    match std::fs::File::open(&path).and_then(|file| file.metadata()) {
        Ok(metadata) if metadata.is_file() => Some(path),
        Ok(_) => tell(&text, &path, "is not a file"),
        Err(error) => tell(&text, &path, &format!("cannot be read: {error}")),
    }
}

/// A file that may be written: its directory is there.
pub(super) fn writable(value: &Value<'_>, directory: &Path) -> Option<PathBuf> {
    let text = value.text()?;
    let path = directory.join(text.text);
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

/// Tokens, one a line.
pub(super) fn tokens(value: &Value<'_>, directory: &Path) -> Vec<Token> {
    let Some(text) = value.text() else { return Vec::new() };
    let path = directory.join(text.text);
    let tokens: Vec<Token> = match text_of(&path, TOKENS_BYTES_MAX) {
        Ok(lines) => {
            lines.lines().map(str::trim).filter(|l| !l.is_empty()).map(Token::new).collect()
        }
        Err(why) => return tell(&text, &path, &why).unwrap_or_default(),
    };
    if tokens.is_empty() || tokens.len() > TOKENS_MAX {
        let what = format!("must have from 1 to {TOKENS_MAX} tokens, one a line");
        return tell(&text, &path, &what).unwrap_or_default();
    }
    warn_if_open(&path);
    tokens
}

#[cfg(unix)]
fn warn_if_open(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o007 != 0 {
        tracing::warn!(file = %path.display(), "anybody can read this file of tokens: chmod o= it");
    }
}

#[cfg(not(unix))]
fn warn_if_open(_: &Path) {}
