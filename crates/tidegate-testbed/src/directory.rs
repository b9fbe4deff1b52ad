//! A temporary directory for each server, removed when it is dropped.
//!
//! Always   Directories that a killed test or a server in a `static` left behind are removed when the next test starts.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

const PREFIX: &str = "tidegate-testbed-";

pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        static SWEPT: Once = Once::new();
        let parent = env::temp_dir();
        SWEPT.call_once(|| sweep(&parent));
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // The name is short because the path of a Unix socket, which is in here, has at most a hundred bytes.
        let path = parent.join(format!("{PREFIX}{}-{number}", process::id()));
        fs::create_dir_all(&path).expect("a temporary directory can be created");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, text).expect("a file in the temporary directory can be written");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A directory that cannot be removed does not fail the test.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_str().and_then(owner).is_some_and(is_gone) {
            // Another process may remove it at the same time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns the id of the process whose directory has this name.
fn owner(name: &str) -> Option<u32> {
    let (owner, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    owner.parse().ok()
}

/// Returns whether no process with this id runs. A directory with our own id is from an earlier process with the same
/// id, because this process has none yet.
fn is_gone(id: u32) -> bool {
    id == process::id() || !Path::new(&format!("/proc/{id}")).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_ended_processes_are_removed_and_no_others() {
        let parent = Directory::new();
        // No process has an id as high as this.
        let names =
            ["tidegate-testbed-4294967295-0", "tidegate-testbed-1-0", "else", "tidegate-testbed-x"];
        for name in names {
            fs::create_dir(parent.join(name)).unwrap();
        }
        sweep(parent.path());
        let left: Vec<bool> = names.iter().map(|name| parent.join(name).exists()).collect();
        assert_eq!(left, [false, true, true, true]);
    }
}
