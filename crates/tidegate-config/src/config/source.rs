//! The files that a configuration was read from, and what was in them: so that a change of any of them is noticed.
//!
//! Always   By their contents: a time stamp may stay the same, and behind a symbolic link it is another file's.
//!          Only regular files: a pipe can be read once.

use std::fs::{File, FileType};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
#[cfg(unix)]
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
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

    /// The file among these that this path leads to, by whatever name.
    pub(super) fn same_file(&self, path: &Path) -> Option<&Path> {
        let path = path.canonicalize().ok()?;
        let is_same = |source: &&Source| source.path.canonicalize().is_ok_and(|it| it == path);
        self.0.iter().find(is_same).map(|source| &*source.path)
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

/// The contents of a regular file, and one byte more than [`SOURCE_BYTES_MAX`] of what is larger. Nothing else is read: a
/// pipe in a file's place would keep the reader waiting for as long as nobody writes.
pub(super) fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut options = File::options();
    options.read(true);
    // To open a pipe would wait, too.
    #[cfg(unix)]
    options.custom_flags(NONBLOCK);
    let file = options.open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() {
        let what = format!("it is {}, and only regular files are read", kind_of(kind));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    capped(file)
}

/// The same of anything that can be read once: for the configuration of a start, which may come from a pipe.
pub(super) fn bytes_of_any(path: &Path) -> io::Result<Vec<u8>> {
    capped(File::open(path)?)
}

fn capped(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(SOURCE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(unix)]
#[expect(clippy::cast_possible_wrap, reason = "it is a single low bit")]
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

/// What is in a regular file's place.
pub(super) fn kind_of(kind: FileType) -> &'static str {
    #[cfg(unix)]
    if kind.is_fifo() {
        return "a pipe";
    } else if kind.is_socket() {
        return "a socket";
    } else if kind.is_char_device() || kind.is_block_device() {
        return "a device";
    }
    if kind.is_dir() { "a directory" } else { "no regular file" }
}

fn digest(contents: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    contents.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_testbed::CertificateFiles as Files;

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
    fn only_regular_files_are_read() {
        let files = Files::new();
        let (pipe, socket) = (files.path("pipe"), files.path("socket"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, what) in [(&*pipe, "a pipe"), (Path::new("/dev/zero"), "a device")] {
            let said = bytes_of(path).unwrap_err().to_string();
            assert_eq!(said, format!("it is {what}, and only regular files are read"));
        }
        assert!(bytes_of(&socket).is_err());
        std::fs::write(files.path("tokens"), "a").unwrap();
        assert_eq!(bytes_of(&files.path("tokens")).unwrap(), b"a");
    }

    #[test]
    fn what_can_be_read_once_is_not_read_again() {
        let mut sources = Sources::default();
        sources.note(Path::new("/dev/zero"), Some(b"what was read"));
        assert!(!sources.have_changed());
    }
}
