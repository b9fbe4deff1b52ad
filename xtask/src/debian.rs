//! Programs that come with the system and not with cargo: found, or else installed from Debian.
//!
//! Always   What is missing is a failure that names the package, never a step left out.
//! Always   Only root installs: nobody else is asked for a password in the middle of a run.

use std::env;
use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context as _, ensure};

use crate::command::Invocation;
use crate::workspace::Workspace;

/// Sees to it that `program` can be started: from PATH, or else out of the Debian `package`.
pub(crate) fn ensure(workspace: &Workspace, program: &str, package: &str) -> anyhow::Result<()> {
    let is_here = |program: &str| is_on(&env::var_os("PATH").unwrap_or_default(), program);
    if is_here(program) {
        return Ok(());
    }
    let missing = missing(program, package);
    ensure!(is_here("apt-get") && is_root(workspace)?, "{missing}");
    println!("{program} is not installed: installing Debian's {package}");
    apt_get(workspace, "update --quiet").run().with_context(|| missing.clone())?;
    apt_get(workspace, "install --quiet --yes --no-install-recommends")
        .words(package)
        .run()
        .with_context(|| missing.clone())?;
    ensure!(is_here(program), "Debian's {package} is installed, but {program} is not on PATH");
    Ok(())
}

fn missing(program: &str, package: &str) -> String {
    format!(
        "{program} is not installed; on Debian or Ubuntu run `sudo apt-get install {package}`, \
         elsewhere install what your system calls {package}"
    )
}

fn is_on(path: &OsStr, program: &str) -> bool {
    env::split_paths(path).any(|directory| directory.join(program).is_file())
}

fn is_root(workspace: &Workspace) -> anyhow::Result<bool> {
    let user = Invocation::program(workspace, Path::new("id")).words("-u").stdout()?;
    Ok(user.trim() == "0")
}

fn apt_get(workspace: &Workspace, words: &str) -> Invocation {
    Invocation::program(workspace, Path::new("apt-get"))
        .env("DEBIAN_FRONTEND", "noninteractive")
        .words(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_in_any_directory_of_the_path() {
        let root = Workspace::locate().unwrap().root().to_owned();
        let path = env::join_paths([root.join("no-such-directory"), root.join("xtask")]).unwrap();
        assert!(is_on(&path, "Cargo.toml"));
        assert!(!is_on(&path, "no-such-file"));
        assert!(!is_on(&path, "src"), "a directory is no program");
    }

    #[test]
    fn what_is_missing_is_said_with_the_command_that_brings_it() {
        let message = missing("callgrind_annotate", "valgrind");
        assert!(message.starts_with("callgrind_annotate is not installed"), "{message}");
        assert!(message.contains("`sudo apt-get install valgrind`"), "{message}");
    }
}
