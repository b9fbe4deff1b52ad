//! Errors of snapshots.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{fmt, io};
use tidegate_core::RuleError;

/// The reason why a snapshot was not used.
///
/// ```
/// use tidegate::snapshot::Snapshot;
///
/// let error = Snapshot::read(b"TIDE").unwrap_err();
/// assert_eq!(error.to_string(), "the snapshot ends before it is complete");
/// ```
#[derive(Debug)]
pub struct SnapshotError {
    path: Option<PathBuf>,
    flaw: Flaw,
}

#[derive(Debug)]
pub(super) enum Flaw {
    Foreign,
    Version(u32),
    CutOff,
    Damaged { at: usize },
    Rule { text: String, error: Box<RuleError> },
    State { at: usize },
    Unreadable(io::Error),
}

impl SnapshotError {
    pub(super) fn new(flaw: Flaw) -> Self {
        Self { path: None, flaw }
    }

    pub(super) fn unreadable(error: io::Error) -> Self {
        Self::new(Flaw::Unreadable(error))
    }

    pub(super) fn at(mut self, path: &Path) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Returns the file, if the snapshot was read from one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        match &self.flaw {
            Flaw::Foreign => f.write_str("this is not a snapshot of Tidegate"),
            Flaw::Version(version) => write!(
                f,
                "the snapshot has version {version}, which this program does not know; start the \
                 program that wrote it, or remove the file and begin without debts"
            ),
            Flaw::CutOff => f.write_str("the snapshot ends before it is complete"),
            Flaw::Damaged { at } => {
                write!(f, "the snapshot is damaged: the checksum before byte {at} is wrong")
            }
            Flaw::Rule { text, .. } => {
                write!(f, "the snapshot's rule `{text}` is not understood by this program")
            }
            Flaw::State { at } => {
                write!(
                    f,
                    "the snapshot has a state before byte {at} that its rule cannot have made"
                )
            }
            Flaw::Unreadable(_) => f.write_str("the snapshot cannot be read"),
        }
    }
}

impl Error for SnapshotError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.flaw {
            Flaw::Rule { error, .. } => Some(&**error),
            Flaw::Unreadable(error) => Some(error),
            _ => None,
        }
    }
}
