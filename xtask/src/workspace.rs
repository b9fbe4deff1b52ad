//! Where the workspace is, and where what it builds goes.
//!
//! Always   The root is found when the command runs, never when it was compiled: a checkout that
//!          was moved after a build must not send its commands to where it used to be.

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
        // `cargo run` names the package's directory; whoever starts the binary by hand does not.
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

    /// The directory cargo builds into, which git ignores.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }
}

/// The cargo that runs us, so that a `+toolchain` on the command line reaches every step.
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
