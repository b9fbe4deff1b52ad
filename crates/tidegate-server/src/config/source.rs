//! The files that a configuration was read from, and what was in them: so that a change of any of them is noticed.
//!
//! Always   By their contents: a time stamp may stay the same, and behind a symbolic link it is another file's.
//!          Only regular files: a pipe can be read once.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// No file that a configuration consists of is larger.
pub(super) const SOURCE_BYTES_MAX: usize = 1 << 20;

/// What was in each file when it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources(Vec<Source>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    path: PathBuf,
    /// `None` if it could not be read.
    digest: Option<u64>,
}

impl Sources {
    /// Remembers that this was read.
    pub(super) fn note(&mut self, path: &Path, contents: Option<&[u8]>) {
        if contents.is_some() && !path.is_file() {
            return;
        }
        self.0.push(Source { path: path.to_owned(), digest: contents.map(digest) });
    }

    /// Whether any file is not as it was.
    pub fn have_changed(&self) -> bool {
        self.0.iter().any(|source| {
            let is_file = source.path.is_file();
            let now = if is_file { bytes_of(&source.path).ok() } else { None };
            now.as_deref().map(digest) != source.digest
        })
    }
}

/// The contents, and one byte more than [`SOURCE_BYTES_MAX`] of what is larger.
pub(super) fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(SOURCE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn digest(contents: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    contents.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::tests::Files;

    fn noted(path: &Path) -> Sources {
        let mut sources = Sources::default();
        sources.note(path, bytes_of(path).as_deref().ok());
        sources
    }

    #[test]
    fn a_file_that_has_changed_or_gone_or_come_is_noticed() {
        let files = Files::new();
        let path = files.path("tokens");
        let missing = noted(&path);
        assert!(!missing.have_changed());
        std::fs::write(&path, "one").unwrap();
        let first = noted(&path);
        assert!(missing.have_changed() && !first.have_changed());
        std::fs::write(&path, "two").unwrap();
        assert!(first.have_changed());
        std::fs::write(&path, "one").unwrap();
        assert!(!first.have_changed(), "it is what it was, whenever it was written");
        std::fs::remove_file(&path).unwrap();
        assert!(first.have_changed());
    }

    #[test]
    fn what_can_be_read_once_is_not_read_again() {
        let mut sources = Sources::default();
        sources.note(Path::new("/dev/zero"), Some(b"what was read"));
        assert!(!sources.have_changed());
    }
}
