//! Finds cargo subcommands that do not come with Rust, or builds them once.
//!
//! Always   An installed tool is used, whatever its version; a missing one is built into `target/tools` in a pinned
//!          version. Nothing is installed outside `target`, except packages of the system (`debian.rs`).

use std::env;
use std::path::{Path, PathBuf};

use anyhow::ensure;

use crate::command::Invocation;
use crate::workspace::Workspace;

pub(crate) const DENY: Tool = Tool { name: "deny", version: "0.20.2" };
pub(crate) const FUZZ: Tool = Tool { name: "fuzz", version: "0.13.2" };
pub(crate) const MUTANTS: Tool = Tool { name: "mutants", version: "27.1.0" };

/// The subcommand `cargo <name>`.
pub(crate) struct Tool {
    name: &'static str,
    version: &'static str,
}

/// Returns a command line that starts with the tool, which is installed first if necessary.
pub(crate) fn invoke(workspace: &Workspace, tool: &Tool) -> anyhow::Result<Invocation> {
    let path = ensure_installed(workspace, tool)?;
    // Cargo passes the name of a subcommand as its first argument, and cargo-mutants requires it.
    Ok(Invocation::program(workspace, &path).words(tool.name))
}

fn ensure_installed(workspace: &Workspace, tool: &Tool) -> anyhow::Result<PathBuf> {
    let binary = format!("cargo-{}{}", tool.name, env::consts::EXE_SUFFIX);
    let own_root = workspace.target().join("tools");
    let own_bin = own_root.join("bin");
    if let Some(path) = find(&binary, &directories(&own_bin)) {
        return Ok(path);
    }
    let Tool { name, version } = tool;
    println!("cargo-{name} is not installed: building {version} into {}.", own_root.display());
    println!("This takes minutes, once.");
    // Not optimised: it runs for seconds, and an optimised build takes minutes longer.
    Invocation::cargo(workspace, "install --locked --debug --root")
        .arguments([&own_root])
        .words(&format!("cargo-{name}@{version}"))
        .run()?;
    let path = own_bin.join(binary);
    ensure!(path.is_file(), "cargo installed cargo-{name}, but not at {}", path.display());
    Ok(path)
}

fn directories(own_bin: &Path) -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let cargo_home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".cargo")));
    env::split_paths(&path)
        .chain(cargo_home.map(|home| home.join("bin")))
        .chain([own_bin.to_owned()])
        .collect()
}

fn find(binary: &str, directories: &[PathBuf]) -> Option<PathBuf> {
    directories.iter().map(|directory| directory.join(binary)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_copy_is_the_last_resort() {
        let directories = directories(Path::new("target/tools/bin"));
        assert_eq!(directories.last().unwrap(), Path::new("target/tools/bin"));
        assert!(directories.len() > 1);
    }

    #[test]
    fn the_first_directory_that_has_it_wins() {
        let root = Workspace::locate().unwrap().root().to_owned();
        let directories = [root.join("no-such-directory"), root.join("xtask/src"), root];
        assert_eq!(find("main.rs", &directories), Some(directories[1].join("main.rs")));
        assert_eq!(find("Cargo.toml", &directories), Some(directories[2].join("Cargo.toml")));
        assert_eq!(find("no-such-file", &directories), None);
    }
}
