//! Files that are there as a whole or not at all.
//!
//! Always   What is written goes to `<file>.part` first, and to the disk, before it takes the place of
//!          the file; the one before it stays as `<file>.previous`. At every moment, power failure
//!          included, one of the two is whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes a file in place of the one that is there, if any.
pub(super) fn replace(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let part = beside(path, "part");
    let result = write_part(&part, write).and_then(|()| {
        keep_previous(path)?;
        fs::rename(&part, path)?;
        sync_directory(path)
    });
    if result.is_err() {
        // Nothing may be left behind; that it could not be written is what is told.
        let _ = fs::remove_file(&part);
    }
    result
}

/// Gives the file that is there a second name, under which it stays. Where that is not possible, it is
/// renamed, and there is a moment without it.
fn keep_previous(path: &Path) -> io::Result<()> {
    let previous = beside(path, "previous");
    if !path.exists() {
        return Ok(());
    }
    match fs::remove_file(&previous) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::hard_link(path, &previous).or_else(|_| fs::rename(path, &previous))
}

fn write_part(
    part: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    // What an interrupted write has left, with whatever rights it has.
    match fs::remove_file(part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = BufWriter::with_capacity(1 << 20, options.open(part)?);
    write(&mut file)?;
    file.flush()?;
    file.get_ref().sync_all()
}

/// The new name is on the disk only when the directory is.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if cfg!(unix) { File::open(parent.unwrap_or(Path::new(".")))?.sync_all() } else { Ok(()) }
}

/// The files to look for, the best one first. What an interrupted write has left is removed.
pub(super) fn candidates(path: &Path) -> [PathBuf; 2] {
    let _ = fs::remove_file(beside(path, "part"));
    [path.to_owned(), beside(path, "previous")]
}

/// What is in a file, if there is one.
pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// All that is written, renamed or removed: the file, and those beside it.
pub(super) fn all(path: &Path) -> [PathBuf; 3] {
    [path.to_owned(), beside(path, "previous"), beside(path, "part")]
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}
