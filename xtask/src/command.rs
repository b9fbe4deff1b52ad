//! Runs other programs; an error shows the command so that it can be pasted into a shell.
//!
//! Always   Every command starts in the workspace root and is printed before it runs, with its additional environment
//!          variables. No command runs through a shell.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, ensure};

use crate::workspace::{self, Workspace};

/// One command line, ready to run.
pub(crate) struct Invocation {
    command: Command,
    /// The program, as it is printed.
    program: OsString,
    root: PathBuf,
}

impl Invocation {
    /// Makes a command of `cargo` with `words`, which are split at blanks.
    pub(crate) fn cargo(workspace: &Workspace, words: &str) -> Self {
        Self::new(workspace, &workspace::cargo(), "cargo".into()).words(words)
    }

    /// Makes a command of another program, at `path` or on PATH.
    pub(crate) fn program(workspace: &Workspace, path: &Path) -> Self {
        let shown = path.strip_prefix(workspace.root()).unwrap_or(path);
        Self::new(workspace, path, shown.into())
    }

    fn new(workspace: &Workspace, path: &Path, program: OsString) -> Self {
        let root = workspace.root().to_owned();
        let mut command = Command::new(path);
        command.current_dir(&root);
        Self { command, program, root }
    }

    /// Adds arguments, which are split at blanks.
    pub(crate) fn words(self, words: &str) -> Self {
        self.arguments(words.split_whitespace())
    }

    pub(crate) fn arguments(
        mut self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Self {
        self.command.args(arguments);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs with the terminal of this process; any exit code but 0 is an error.
    pub(crate) fn run(mut self) -> anyhow::Result<()> {
        println!("$ {self}");
        let status = self.command.status().with_context(|| self.unstartable())?;
        self.judge(status)
    }

    /// Runs and returns standard output; standard error goes to the terminal.
    pub(crate) fn stdout(mut self) -> anyhow::Result<String> {
        let output =
            self.command.stderr(Stdio::inherit()).output().with_context(|| self.unstartable())?;
        self.judge(output.status)?;
        String::from_utf8(output.stdout).with_context(|| format!("`{self}` did not print UTF-8"))
    }

    fn unstartable(&self) -> String {
        format!("`{}` could not be started; is it installed?", self.program.to_string_lossy())
    }

    fn judge(&self, status: ExitStatus) -> anyhow::Result<()> {
        ensure!(
            status.success(),
            "this command failed ({status}); to see it alone, run in {}:\n  {self}",
            self.root.display()
        );
        Ok(())
    }
}

impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.command.get_envs() {
            let value = value.unwrap_or_default();
            write!(f, "{}={} ", name.to_string_lossy(), quote(&value.to_string_lossy()))?;
        }
        f.write_str(&quote(&self.program.to_string_lossy()))?;
        for argument in self.command.get_args() {
            write!(f, " {}", quote(&argument.to_string_lossy()))?;
        }
        Ok(())
    }
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let workspace = Workspace::locate().unwrap();
        let shown = Invocation::cargo(&workspace, "test -p tidegate")
            .arguments(["a b", "it's", ""])
            .env("RUSTFLAGS", "--cfg tidegate_loom")
            .to_string();
        assert_eq!(
            shown,
            r"RUSTFLAGS='--cfg tidegate_loom' cargo test -p tidegate 'a b' 'it'\''s' ''"
        );
    }

    #[test]
    fn a_failure_names_the_command_and_its_status() {
        let workspace = Workspace::locate().unwrap();
        // The files differ, which git reports with its exit code.
        let words = "diff --no-index --quiet Cargo.toml clippy.toml";
        let git = Invocation::program(&workspace, Path::new("git")).words(words);
        let message = format!("{:#}", git.run().unwrap_err());
        assert!(message.contains(&format!("git {words}")), "{message}");
        assert!(message.contains("(exit status: 1)"), "{message}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let workspace = Workspace::locate().unwrap();
        let error =
            Invocation::program(&workspace, Path::new("no-such-program")).run().unwrap_err();
        assert!(format!("{error:#}").contains("`no-such-program` could not be started"));
    }
}
