//! Tests real clients and proxies against the real server.
//!
//! Always   A missing peer is a failure; no test is skipped.
//! Always   Each test ends all processes that it starts, also if it fails. They listen on loopback only, and their files are
//!          in a temporary directory.

mod packages;

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};

use self::packages::Packages;
use crate::check;
use crate::command::Invocation;
use crate::debian::{self, Program};
use crate::workspace::Workspace;

/// The directory of the tests, which has a README.
const SCRIPTS: &str = "crates/tidegate-server/tests/peers";

const PROGRAMS: &[Program] = &[
    Program { name: "python3", package: "python3-venv" },
    Program { name: "node", package: "nodejs" },
    Program { name: "npm", package: "npm" },
    Program { name: "redis-cli", package: "redis-tools" },
    Program { name: "curl", package: "curl" },
    Program { name: "nginx", package: "nginx" },
    Program { name: "caddy", package: "caddy" },
    Program { name: "promtool", package: "prometheus" },
    Program { name: "systemd-analyze", package: "systemd" },
    Program { name: "chromium", package: "chromium" },
];

/// The tests; each is a script of this name.
const CONVERSATIONS: &[&str] = &[
    "redis_cli",
    "redis_py",
    "node",
    "nginx",
    "caddy",
    "prometheus",
    "systemd",
    "openapi",
    "dashboard",
];

/// The test of Envoy is in Rust, with its own upstream and clock.
const ENVOY: &str = "envoy";

/// Runs `cargo xtask peers [name]`: all tests, or one.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> anyhow::Result<()> {
    let known = CONVERSATIONS.iter().chain([&ENVOY]);
    match arguments {
        [] => all(workspace),
        [name] if known.clone().any(|known| known == name) => Peers::prepare(workspace)?.talk(name),
        _ => {
            let known: Vec<&str> = known.copied().collect();
            bail!("expected one of {}, got `{}`", known.join(", "), arguments.join(" "))
        }
    }
}

pub(crate) fn all(workspace: &Workspace) -> anyhow::Result<()> {
    let peers = Peers::prepare(workspace)?;
    CONVERSATIONS.iter().chain([&ENVOY]).try_for_each(|name| peers.talk(name))
}

/// The installed peers, and the server.
struct Peers<'a> {
    workspace: &'a Workspace,
    packages: Packages,
    tidegate: PathBuf,
}

impl<'a> Peers<'a> {
    fn prepare(workspace: &'a Workspace) -> anyhow::Result<Self> {
        debian::ensure_all(workspace, PROGRAMS)?;
        let packages = Packages::prepare(workspace, Path::new(SCRIPTS))?;
        // With the features and the profile of the tests, so that their build is reused.
        let words =
            format!("build --profile test {} --locked --bin tidegate", check::EVERY_CRATE[0]);
        Invocation::cargo(workspace, &words).run()?;
        let tidegate = workspace.target().join("debug/tidegate");
        ensure!(tidegate.is_file(), "cargo built tidegate, but not at {}", tidegate.display());
        Ok(Self { workspace, packages, tidegate })
    }

    fn talk(&self, name: &str) -> anyhow::Result<()> {
        if name == ENVOY {
            return self.envoy();
        }
        // Python must not write `__pycache__` into the sources.
        Invocation::program(self.workspace, &self.packages.python())
            .env("TIDEGATE", &self.tidegate)
            .env("NODE_PATH", self.packages.node_path())
            .words(&format!("-B {SCRIPTS}/{name}.py"))
            .run()
    }

    fn envoy(&self) -> anyhow::Result<()> {
        let words = format!("test {} --locked --test envoy", check::EVERY_CRATE[0]);
        Invocation::cargo(self.workspace, &words)
            .env("TIDEGATE_ENVOY", self.packages.program("envoy"))
            .run()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_conversation_is_in_the_folder() {
        let scripts = Workspace::locate().unwrap().root().join(SCRIPTS);
        for name in CONVERSATIONS {
            assert!(scripts.join(name).with_extension("py").is_file(), "{name}");
        }
    }

    #[test]
    fn a_name_that_nobody_has_is_answered_with_those_there_are() {
        let workspace = Workspace::locate().unwrap();
        let error = run(&workspace, &["apache".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("nginx, caddy"), "{error}");
        assert!(error.ends_with("envoy, got `apache`"), "{error}");
    }
}
