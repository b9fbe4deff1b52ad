//! The files that a configuration was read from, with digests of their contents to detect changes.
//!
//! Always   Contents are compared, not modification times: those may stay the same, or belong to the target of a symbolic link.
//!          Only regular files are compared: a pipe can be read once.

use std::fs::{File, FileType};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
#[cfg(unix)]
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Maximum size of each file of a configuration, in bytes.
pub(super) const SOURCE_BYTES_MAX: usize = 1 << 20;

/// The files that a configuration was read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources(Vec<Source>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    path: PathBuf,
    /// `None` if the file could not be read.
    digest: Option<u64>,
}

impl Sources {
    /// Records that a file was read, or could not be read.
    pub(super) fn note(&mut self, path: &Path, contents: Option<&[u8]>) {
        if contents.is_some() && !path.is_file() {
            return;
        }
        self.0.push(Source { path: path.to_owned(), digest: contents.map(digest) });
    }

    /// Returns which of these files the path refers to, symbolic links included.
    pub(super) fn same_file(&self, path: &Path) -> Option<&Path> {
        let path = path.canonicalize().ok()?;
        let is_same = |source: &&Source| source.path.canonicalize().is_ok_and(|it| it == path);
        self.0.iter().find(is_same).map(|source| &*source.path)
    }

    /// Returns whether any of the files has changed.
    pub fn have_changed(&self) -> bool {
        self.0.iter().any(|source| {
            let is_file = source.path.is_file();
            let now = if is_file { bytes_of(&source.path).ok() } else { None };
            now.as_deref().map(digest) != source.digest
        })
    }
}

/// Reads a regular file, up to one byte more than [`SOURCE_BYTES_MAX`]. Refuses everything else: a pipe would keep the reader
/// waiting until another process writes to it.
pub(super) fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut options = File::options();
    options.read(true);
    // Without this flag, opening a pipe waits for a writer.
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

/// Reads any file, up to the same size. At the start, the configuration may come from a pipe.
pub(super) fn bytes_of_any(path: &Path) -> io::Result<Vec<u8>> {
    capped(File::open(path)?)
}

fn capped(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(SOURCE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Decodes the text of a file, or returns what is wrong with it.
pub(super) fn text_of(bytes: Vec<u8>) -> Result<String, String> {
    if bytes.len() > SOURCE_BYTES_MAX {
        return Err(too_large());
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.split(|byte| *byte == b'\n').count();
        format!("is not UTF-8 text in line {line}")
    })
}

pub(super) fn too_large() -> String {
    format!("is larger than {SOURCE_BYTES_MAX} bytes")
}

#[cfg(unix)]
#[expect(clippy::cast_possible_wrap, reason = "it is a single low bit")]
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

/// Names the kind of a file that is not a regular file.
pub(super) fn kind_of(kind: FileType) -> &'static str {
    #[cfg(unix)]
    if kind.is_fifo() {
        return "a pipe";
    } else if kind.is_socket() {
        return "a socket";
    } else if kind.is_char_device() || kind.is_block_device() {
        return "a device";
    }
    if kind.is_dir() { "a directory" } else { "not a regular file" }
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
    fn a_changed_removed_or_new_file_is_detected() {
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
        assert!(
            !first.have_changed(),
            "the contents are the same, although the file was written again"
        );
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
    fn a_file_that_can_be_read_once_is_not_read_again() {
        let mut sources = Sources::default();
        sources.note(Path::new("/dev/zero"), Some(b"what was read"));
        assert!(!sources.have_changed());
    }
}
