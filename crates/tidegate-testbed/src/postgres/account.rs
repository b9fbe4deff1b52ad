//! The user that the server runs as, because PostgreSQL refuses to run as root.

use std::os::unix::fs::chown;
use std::path::Path;

use rustix::process::geteuid;

/// The user `nobody` of Debian and most other systems. It owns no other files.
const NOBODY: u32 = 65_534;
const AS_NOBODY: [&str; 5] = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];

/// The current user or, if that is root, an unprivileged one.
#[derive(Clone, Copy)]
pub(super) enum Account {
    Ours,
    Nobody,
}

impl Account {
    pub(super) fn choose() -> Self {
        if geteuid().is_root() { Self::Nobody } else { Self::Ours }
    }

    /// Makes it the owner of the file or directory.
    pub(super) fn own(self, path: &Path) {
        if matches!(self, Self::Nobody) {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("root may give it away");
        }
    }

    /// Returns the options of `setpriv`.
    pub(super) const fn privileges(self) -> &'static [&'static str] {
        match self {
            Self::Ours => &[],
            Self::Nobody => &AS_NOBODY,
        }
    }
}
