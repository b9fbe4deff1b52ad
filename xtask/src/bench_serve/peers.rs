//! Installs and starts the peers.
//!
//! Always   In pinned versions, built into `target/peers`. A peer that cannot be installed is named in the output, and is
//!          left out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::server::{Server, words};
use crate::command::Invocation;
use crate::debian;
use crate::workspace::{self, Workspace};

const THROTTLECRAB: &str = "0.4.40";
/// The newest on crates.io; 0.5 is on GitHub only.
const REDIS_CELL: &str = "0.2.2";

/// The installed servers.
pub(super) struct Peers {
    pub(super) tidegate: PathBuf,
    pub(super) throttlecrab: PathBuf,
    /// The Redis module, and the directory of the Rust libraries that it needs.
    redis_cell: Option<(PathBuf, String)>,
    /// From PATH, because it is not on crates.io.
    pub(super) limitador: Option<PathBuf>,
    /// A server that makes no decisions.
    no_decision: PathBuf,
    /// A directory for files of servers and load generators.
    pub(super) directory: PathBuf,
}

/// The protocol of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Resp,
    Http,
    Grpc,
}

/// A limit that no key reaches, so that all servers do the same work.
const TIDEGATE_TOML: &str =
    "[limits.bench]\nrule = \"1000000000/s\"\ndomain = \"bench\"\ndescriptor = [\"key\"]\n";
const LIMITADOR_YAML: &str = "- namespace: bench\n  max_value: 1000000000\n  seconds: 60\n  conditions: []\n  \
                              variables:\n    - descriptors[0].key\n";

impl Peers {
    pub(super) fn find(workspace: &Workspace) -> anyhow::Result<Self> {
        let directory = workspace.target().join("peers");
        fs::create_dir_all(&directory)?;
        let throttlecrab = throttlecrab(workspace, &directory)?;
        let redis_cell = match redis_cell(workspace, &directory) {
            Ok(module) => Some(module),
            Err(error) => {
                println!("redis-cell is left out: {error:#}");
                None
            }
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let limitador = std::env::split_paths(&path)
            .map(|directory| directory.join("limitador-server"))
            .find(|program| program.is_file());
        if limitador.is_none() {
            println!(
                "limitador-server is left out: it is not on PATH, and not on crates.io; `cargo install --git \
                 https://github.com/Kuadrant/limitador limitador-server` has it"
            );
        }
        fs::write(directory.join("tidegate.toml"), TIDEGATE_TOML)?;
        fs::write(directory.join("limitador.yaml"), LIMITADOR_YAML)?;
        let build =
            "build --release --locked -p tidegate-bench --no-default-features --features floor";
        Invocation::cargo(workspace, build).words("--bin no_decision").run()?;
        let release = |name: &str| workspace.target().join("release").join(name);
        let (tidegate, no_decision) = (release("tidegate"), release("no_decision"));
        Ok(Self { tidegate, throttlecrab, redis_cell, limitador, no_decision, directory })
    }

    pub(super) fn ours(&self, wire: Wire) -> anyhow::Result<Server> {
        let config = self.directory.join("tidegate.toml").display().to_string();
        let arguments = |port: u16| {
            let mut line = words("serve --admin off --config");
            line.push(config.clone());
            for (name, other) in
                [("--resp", Wire::Resp), ("--http", Wire::Http), ("--grpc", Wire::Grpc)]
            {
                let place = if other == wire { format!("127.0.0.1:{port}") } else { "off".into() };
                line.extend([name.to_owned(), place]);
            }
            line
        };
        Server::start(&self.tidegate, arguments, &[])
    }

    pub(super) fn throttlecrab(&self, wire: Wire, keys: u32) -> anyhow::Result<Server> {
        let wire = match wire {
            Wire::Resp => "redis",
            Wire::Http => "http",
            Wire::Grpc => "grpc",
        };
        let arguments = |port: u16| {
            words(&format!(
                "--{wire} --{wire}-host 127.0.0.1 --{wire}-port {port} --store-capacity {keys} \
                 --log-level error"
            ))
        };
        Server::start(&self.throttlecrab, arguments, &[])
    }

    pub(super) fn no_decision(&self) -> anyhow::Result<Server> {
        Server::start(&self.no_decision, |port| vec![port.to_string()], &[])
    }

    pub(super) fn redis() -> anyhow::Result<Server> {
        Server::start(Path::new("redis-server"), redis_line, &[])
    }

    /// Starts Redis with the module, if it is installed.
    pub(super) fn redis_cell(&self) -> anyhow::Result<Option<Server>> {
        let Some((module, libraries)) = &self.redis_cell else { return Ok(None) };
        let arguments = |port: u16| {
            let mut line = redis_line(port);
            line.extend(["--loadmodule".to_owned(), module.display().to_string()]);
            line
        };
        let environment = [("LD_LIBRARY_PATH", libraries.as_str())];
        Server::start(Path::new("redis-server"), arguments, &environment).map(Some)
    }

    pub(super) fn limitador(&self, wire: Wire) -> anyhow::Result<Option<Server>> {
        let Some(program) = &self.limitador else { return Ok(None) };
        let limits = self.directory.join("limitador.yaml").display().to_string();
        // limitador cannot disable one of its two protocols, so the other one gets another port.
        let other = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let arguments = |port: u16| {
            let (http, rls) = if wire == Wire::Http { (port, other) } else { (other, port) };
            let flags = format!("-b 127.0.0.1 -p {rls} -B 127.0.0.1 -P {http}");
            let mut line = words(&flags);
            line.extend([limits.clone(), "memory".to_owned()]);
            line
        };
        Server::start(program, arguments, &[]).map(Some)
    }
}

fn redis_line(port: u16) -> Vec<String> {
    ["--port", &port.to_string(), "--save", "", "--appendonly", "no"].map(str::to_owned).to_vec()
}

fn throttlecrab(workspace: &Workspace, directory: &Path) -> anyhow::Result<PathBuf> {
    let program = directory.join("bin/throttlecrab-server");
    if !program.is_file() {
        // throttlecrab-server can only be built with gRPC, which needs protoc.
        debian::ensure(workspace, "protoc", "protobuf-compiler")?;
        println!("throttlecrab-server is built into {}: minutes, once.", directory.display());
        Invocation::cargo(workspace, "install --locked --root")
            .arguments([directory])
            .words(&format!("throttlecrab-server@{THROTTLECRAB}"))
            .env("CARGO_TARGET_DIR", directory.join("build"))
            .run()?;
    }
    Ok(program)
}

/// Builds a library as the dependency of an empty crate, because cargo cannot install libraries.
fn redis_cell(workspace: &Workspace, directory: &Path) -> anyhow::Result<(PathBuf, String)> {
    let (crate_directory, target) = (directory.join("redis-cell"), directory.join("cell"));
    let find = || module(&target.join("release/deps"));
    let module = if let Ok(module) = find() {
        module
    } else {
        fs::create_dir_all(crate_directory.join("src"))?;
        let manifest = format!(
            "[package]\nname = \"redis-cell-module\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
             [dependencies]\nredis-cell = \"={REDIS_CELL}\"\n\n[workspace]\n"
        );
        fs::write(crate_directory.join("Cargo.toml"), manifest)?;
        fs::write(crate_directory.join("src/lib.rs"), "")?;
        Invocation::cargo(workspace, "build --release --manifest-path")
            .arguments([crate_directory.join("Cargo.toml")])
            .env("CARGO_TARGET_DIR", &target)
            .run()?;
        find()?
    };
    // A dylib does not contain Rust's standard library.
    let rustc = workspace::cargo().with_file_name("rustc");
    let output = Command::new(rustc).args(["--print", "target-libdir"]).output();
    let libraries = String::from_utf8(output.context("cannot start rustc")?.stdout)?;
    Ok((module, libraries.trim().to_owned()))
}

fn module(directory: &Path) -> anyhow::Result<PathBuf> {
    let paths = fs::read_dir(directory)?.flatten().map(|entry| entry.path());
    let is_module = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libredis_cell") && path.extension().is_some_and(|end| end == "so")
    };
    paths.into_iter().find(is_module).context("cargo built no libredis_cell.so")
}
