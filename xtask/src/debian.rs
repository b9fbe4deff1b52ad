//! Finds programs of the system that do not come with cargo, or installs their Debian packages.
//!
//! Always   A missing program is a failure that names the package; no step is skipped.
//! Always   Only root installs packages, so that no run stops to ask for a password.
//! Always   The service of a package is not started.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};

use crate::command::Invocation;
use crate::workspace::Workspace;

/// A program, and its Debian package.
#[derive(Clone, Copy)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
}

/// Makes sure that a program is installed, on PATH or in Debian's directory for it.
pub(crate) fn ensure(
    workspace: &Workspace,
    name: &'static str,
    package: &'static str,
) -> anyhow::Result<()> {
    ensure_all(workspace, &[Program { name, package }])
}

/// Makes sure that several programs are installed; missing packages are installed together.
pub(crate) fn ensure_all(workspace: &Workspace, programs: &[Program]) -> anyhow::Result<()> {
    let absent: Vec<Program> =
        programs.iter().copied().filter(|program| !is_here(program.name)).collect();
    if absent.is_empty() {
        return Ok(());
    }
    install(workspace, &absent)?;
    for Program { name, package } in absent {
        ensure!(
            is_here(name),
            "Debian's {package} is installed, but it has no program {name} where it is expected"
        );
    }
    Ok(())
}

/// Installs the packages of these programs.
pub(crate) fn install(workspace: &Workspace, programs: &[Program]) -> anyhow::Result<()> {
    let missing = missing(programs);
    ensure!(is_here("apt-get") && is_root(workspace)?, "{missing}");
    println!("{missing}; installing");
    let _off = ServicesOff::begin().with_context(|| missing.clone())?;
    apt_get(workspace, "update --quiet").run().with_context(|| missing.clone())?;
    apt_get(workspace, "install --quiet --yes --no-install-recommends")
        .arguments(programs.iter().map(|program| program.package))
        .run()
        .with_context(|| missing.clone())
}

fn missing(programs: &[Program]) -> String {
    let names: Vec<&str> = programs.iter().map(|program| program.name).collect();
    let packages: Vec<&str> = programs.iter().map(|program| program.package).collect();
    format!(
        "not installed: {}; on Debian or Ubuntu run `sudo apt-get install {}`, elsewhere the \
         packages of your system",
        names.join(", "),
        packages.join(" ")
    )
}

/// Debian installs each version of PostgreSQL in a directory here, with its programs in `bin`.
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";

fn is_here(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    is_on(&path, program) || is_off_path(Path::new(POSTGRES_VERSIONS), program)
}

fn is_on(path: &OsStr, program: &str) -> bool {
    env::split_paths(path).any(|directory| directory.join(program).is_file())
}

fn is_off_path(versions: &Path, program: &str) -> bool {
    let versions = fs::read_dir(versions).into_iter().flatten().flatten();
    versions.map(|version| version.path().join("bin")).any(|bin| bin.join(program).is_file())
}

fn is_root(workspace: &Workspace) -> anyhow::Result<bool> {
    let user = Invocation::program(workspace, Path::new("id")).words("-u").stdout()?;
    Ok(user.trim() == "0")
}

/// Runs apt-get without questions; it waits for another package manager, such as an automatic upgrade.
fn apt_get(workspace: &Workspace, words: &str) -> Invocation {
    Invocation::program(workspace, Path::new("apt-get"))
        .env("DEBIAN_FRONTEND", "noninteractive")
        .words("-o DPkg::Lock::Timeout=300")
        .words(words)
}

/// A script that Debian's packages run before they start a service; exit code 101 forbids it.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Keeps packages from starting services until it is dropped, unless the machine already has a policy.
struct ServicesOff {
    is_ours: bool,
}

impl ServicesOff {
    fn begin() -> anyhow::Result<Self> {
        let off = Self { is_ours: !Path::new(POLICY).exists() };
        if off.is_ours {
            fs::write(POLICY, "#!/bin/sh\nexit 101\n")?;
            fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755))?;
        }
        Ok(off)
    }
}

impl Drop for ServicesOff {
    fn drop(&mut self) {
        if self.is_ours {
            // Fails only if the file is already gone.
            let _ = fs::remove_file(POLICY);
        }
    }
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
        assert!(!is_on(&path, "src"), "a directory is not a program");
    }

    #[test]
    fn a_program_that_debian_keeps_off_the_path_is_found() {
        let root = Workspace::locate().unwrap().root().to_owned();
        // A directory for each version, with `bin` in it, as for PostgreSQL.
        let versions = env::temp_dir().join(format!("tidegate-xtask-{}", std::process::id()));
        fs::create_dir_all(versions.join("15/bin")).unwrap();
        fs::write(versions.join("15/bin/initdb"), "").unwrap();
        let (there, absent) =
            (is_off_path(&versions, "initdb"), is_off_path(&versions, "postgres"));
        fs::remove_dir_all(&versions).unwrap();
        assert!(there && !absent);
        assert!(!is_off_path(&root.join("no-such-directory"), "initdb"));
    }

    #[test]
    fn what_is_missing_is_said_with_the_command_that_brings_it() {
        let message = missing(&[
            Program { name: "callgrind_annotate", package: "valgrind" },
            Program { name: "promtool", package: "prometheus" },
        ]);
        assert!(message.starts_with("not installed: callgrind_annotate, promtool;"), "{message}");
        assert!(message.contains("`sudo apt-get install valgrind prometheus`"), "{message}");
    }
}
