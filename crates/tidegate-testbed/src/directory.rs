//! A directory of its own for each server, gone with it.
//!
//! Always   What a killed test, or a server in a `static`, has left behind goes when the next test starts.

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
        // Short: the path of a Unix socket may have a hundred bytes, and one goes here.
        let path = parent.join(format!("{PREFIX}{}-{number}", process::id()));
        fs::create_dir_all(&path).expect("a temporary directory can be made");
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
        fs::write(&path, text).expect("it is ours to write to");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A directory that stays behind is no reason for a test to fail.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_str().and_then(owner).is_some_and(is_gone) {
            // Another process may sweep at the same time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The id of the process whose directory has this name.
fn owner(name: &str) -> Option<u32> {
    let (owner, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    owner.parse().ok()
}

/// Our own id is that of somebody before us: we have no directory yet.
fn is_gone(id: u32) -> bool {
    id == process::id() || !Path::new(&format!("/proc/{id}")).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dead_have_left_is_swept_and_nothing_else() {
        let parent = Directory::new();
        // No process has so high an id.
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
