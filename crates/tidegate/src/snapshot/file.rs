//! Atomic replacement of files.
//!
//! Always   The content is written to `<file>.part` and synced before it replaces the file, and the old file stays as
//!          `<file>.previous`. At every moment, also after a power failure, one of the two is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes a file, and replaces an existing one.
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
        // Removes the partial file; the error that is returned is that of the write.
        let _ = fs::remove_file(&part);
    }
    result
}

/// Links the existing file to its second name. Where hard links are not supported, it is renamed, and for a moment there is
/// no file.
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
    // The rest of an interrupted write, whatever its permissions are.
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

/// Syncs the directory: without that, the new name may not be on the disk.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if cfg!(unix) { File::open(parent.unwrap_or(Path::new(".")))?.sync_all() } else { Ok(()) }
}

/// Returns the files to read, best first. Removes the rest of an interrupted write.
pub(super) fn candidates(path: &Path) -> [PathBuf; 2] {
    let _ = fs::remove_file(beside(path, "part"));
    [path.to_owned(), beside(path, "previous")]
}

/// Reads a file, if it exists.
pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns all files that are written, renamed or removed.
pub(super) fn all(path: &Path) -> [PathBuf; 3] {
    [path.to_owned(), beside(path, "previous"), beside(path, "part")]
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}
