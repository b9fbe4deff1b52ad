//! The root of the workspace, and its target directory.
//!
//! Always   The root is located at run time and not at compile time, so that a checkout can be moved after a build.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// The checkout that this run works on.
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
}

impl Workspace {
    pub(crate) fn locate() -> anyhow::Result<Self> {
        // `cargo run` sets the directory of the package; a binary that is started directly asks cargo.
        let root = match env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from) {
            Some(package) if package.ends_with("xtask") => package.join(".."),
            _ => ask_cargo()?,
        };
        let root = root
            .canonicalize()
            .with_context(|| format!("the workspace root {} cannot be opened", root.display()))?;
        // `join` keeps an absolute CARGO_TARGET_DIR as it is.
        let target = root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
        Ok(Self { root, target })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory that cargo builds into, which git ignores.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }
}

/// Returns the path of the cargo that runs this program, so that a `+toolchain` argument applies to every step.
pub(crate) fn cargo() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

fn ask_cargo() -> anyhow::Result<PathBuf> {
    let output = Command::new(cargo())
        .args(["locate-project", "--workspace", "--message-format", "plain"])
        .output()
        .context("cargo could not be started; is it on PATH?")?;
    ensure!(
        output.status.success(),
        "no workspace here: run `cargo xtask` from inside the repository"
    );
    let manifest = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    let root = manifest.parent().context("cargo named a manifest that is in no directory")?;
    Ok(root.to_owned())
}
