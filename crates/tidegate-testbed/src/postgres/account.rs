//! Whom the server runs as: PostgreSQL refuses to run as root.

use std::os::unix::fs::chown;
use std::path::Path;

use rustix::process::geteuid;

/// `nobody`, of Debian and most others. It owns nothing, so nothing but its own files is in its reach.
const NOBODY: u32 = 65_534;
const AS_NOBODY: [&str; 5] = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];

/// Ourselves, or somebody who is not root.
#[derive(Clone, Copy)]
pub(super) enum Account {
    Ours,
    Nobody,
}

impl Account {
    pub(super) fn choose() -> Self {
        if geteuid().is_root() { Self::Nobody } else { Self::Ours }
    }

    /// Lets it have the file or directory.
    pub(super) fn own(self, path: &Path) {
        if matches!(self, Self::Nobody) {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("root may give it away");
        }
    }

    /// What `setpriv` is told.
    pub(super) const fn privileges(self) -> &'static [&'static str] {
        match self {
            Self::Ours => &[],
            Self::Nobody => &AS_NOBODY,
        }
    }
}
