//! The files that a commit would hold, with their text: all that a rule may look at.
//!
//! Always   Paths are relative to the root and use `/`. Ignored files are not there, so a link to
//!          one is broken, as it would be in a fresh clone.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context as _;

use crate::command::Invocation;
use crate::workspace::Workspace;

pub(super) struct Tree {
    files: Vec<File>,
}

pub(super) struct File {
    pub(super) path: String,
    /// Empty if the file is not text.
    pub(super) text: String,
}

impl Tree {
    pub(super) fn read(workspace: &Workspace) -> anyhow::Result<Self> {
        let listed = Invocation::program(workspace, Path::new("git"))
            .words("ls-files -z --cached --others --exclude-standard")
            .stdout()
            .context("tidy asks git which files there are")?;
        let mut files = Vec::new();
        for path in listed.split_terminator('\0') {
            match fs::read(workspace.root().join(path)) {
                Ok(bytes) => files.push(File { path: path.to_owned(), text: text(bytes) }),
                // Deleted but not yet committed, or a link to a directory: nothing to read.
                Err(error)
                    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) => {}
                Err(error) => return Err(error).with_context(|| format!("{path} is unreadable")),
            }
        }
        Ok(Self { files })
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| File { path: path.into(), text: text.into() };
        Self { files: files.iter().map(file).collect() }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether there is a file or a directory at `path`; the root is the empty path.
    pub(super) fn has(&self, path: &str) -> bool {
        self.files.iter().any(|file| {
            let rest = file.path.strip_prefix(path);
            rest.is_some_and(|rest| path.is_empty() || rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// The names of the files with this extension that are directly in `directory`.
    pub(super) fn names_in(&self, directory: &str, extension: &str) -> BTreeSet<&str> {
        let paths = self.files.iter().filter(|file| file.extension() == extension);
        let names = paths.filter_map(|file| file.path.strip_prefix(directory)?.strip_prefix('/'));
        names.filter(|name| !name.contains('/')).collect()
    }

    /// The names of the directories in `crates/`.
    pub(super) fn crates(&self) -> BTreeSet<&str> {
        let inside = self.files.iter().filter_map(|file| file.path.strip_prefix("crates/"));
        inside.filter_map(|path| Some(path.split_once('/')?.0)).collect()
    }
}

impl File {
    /// What follows the last dot of the name, if anything does.
    pub(super) fn extension(&self) -> &str {
        Path::new(&self.path).extension().and_then(|extension| extension.to_str()).unwrap_or("")
    }

    /// Lines with their numbers, counted from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }
}

fn text(bytes: Vec<u8>) -> String {
    if bytes.contains(&0) {
        return String::new();
    }
    String::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_file_is_in_the_tree() {
        let tree = Tree::read(&Workspace::locate().unwrap()).unwrap();
        let file = tree.file("xtask/src/tidy/tree.rs").unwrap();
        assert!(file.text.starts_with("//! The files that a commit would hold"));
        assert_eq!(file.extension(), "rs");
    }

    #[test]
    fn a_directory_exists_because_of_its_files() {
        let tree = Tree::of(&[("docs/guide/start.md", "")]);
        for there in ["", "docs", "docs/guide", "docs/guide/start.md"] {
            assert!(tree.has(there), "{there}");
        }
        for absent in ["doc", "docs/gui", "docs/guide/start", "guide"] {
            assert!(!tree.has(absent), "{absent}");
        }
    }

    #[test]
    fn names_are_those_directly_inside() {
        let tree = Tree::of(&[("spec/a.md", ""), ("spec/b/c.md", ""), ("spec/d.txt", "")]);
        assert_eq!(tree.names_in("spec", "md"), BTreeSet::from(["a.md"]));
    }

    #[test]
    fn what_is_not_utf8_has_no_text() {
        assert_eq!(text(b"plain".to_vec()), "plain");
        assert_eq!(text(vec![0xff, 0xfe]), "");
        assert_eq!(text(b"a\0b".to_vec()), "");
    }
}
