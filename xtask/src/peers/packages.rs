//! Packages from `PyPI` and npm, installed once into `target/peers`.
//!
//! Always   Versions are those of `requirements.txt` and `package.json`; when a file changes, all packages are reinstalled.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::command::Invocation;
use crate::debian::{self, Program};
use crate::workspace::Workspace;

pub(super) struct Packages {
    python: PathBuf,
    node: PathBuf,
}

impl Packages {
    /// Installs the packages in `requirements.txt` and `package.json` of `scripts`.
    pub(super) fn prepare(workspace: &Workspace, scripts: &Path) -> anyhow::Result<Self> {
        let peers = workspace.target().join("peers");
        let packages = Self { python: peers.join("python"), node: peers.join("node") };
        let scripts = workspace.root().join(scripts);
        once(&packages.python, &scripts.join("requirements.txt"), |file| {
            packages.install_python(workspace, file)
        })?;
        once(&packages.node, &scripts.join("package.json"), |file| {
            packages.install_node(workspace, file)
        })?;
        Ok(packages)
    }

    pub(super) fn python(&self) -> PathBuf {
        self.program("python")
    }

    /// Returns the path of a program of a Python package.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.python.join("bin").join(name)
    }

    pub(super) fn node_path(&self) -> PathBuf {
        self.node.join("node_modules")
    }

    fn install_python(&self, workspace: &Workspace, file: &Path) -> anyhow::Result<()> {
        let python = || Invocation::program(workspace, Path::new("python3"));
        // Debian has Python and its module for virtual environments in separate packages.
        if python().words("-c").arguments(["import ensurepip"]).stdout().is_err() {
            let venv = Program { name: "Python's ensurepip", package: "python3-venv" };
            debian::install(workspace, &[venv])?;
        }
        python().words("-m venv --clear").arguments([&self.python]).run()?;
        Invocation::program(workspace, &self.python())
            .words("-m pip install --quiet --disable-pip-version-check --requirement")
            .arguments([file])
            .run()
    }

    fn install_node(&self, workspace: &Workspace, file: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(&self.node)?;
        fs::copy(file, self.node.join("package.json"))?;
        Invocation::program(workspace, Path::new("npm"))
            .words("install --silent --no-audit --no-fund --prefix")
            .arguments([&self.node])
            .run()
    }
}

/// Installs the packages of `file` into `directory`, unless that was done before.
fn once(
    directory: &Path,
    file: &Path,
    install: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let wanted = fs::read(file).with_context(|| format!("{} is unreadable", file.display()))?;
    let stamp = directory.join("installed");
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    install(file)?;
    fs::write(stamp, wanted)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn what_is_installed_is_installed_again_only_when_the_file_changes() {
        let directory = Workspace::locate().unwrap().target().join("tmp/packages");
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("requirements.txt");
        fs::write(&file, "redis==1").unwrap();
        assert!(once(&directory, &file, |_| bail!("no network")).is_err());
        once(&directory, &file, |_| Ok(())).unwrap();
        once(&directory, &file, |_| bail!("it was installed before")).unwrap();
        fs::write(&file, "redis==2").unwrap();
        assert!(once(&directory, &file, |_| bail!("asked")).is_err());
    }
}
