//! A server on core 0, its CPU time, and load generators on core 1.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

/// Seconds after which a load generator is killed.
const PATIENCE: &str = "100";
/// Makes a process end when this one ends, also if this one is killed.
const DIES_WITH_US: [&str; 2] = ["--pdeathsig", "TERM"];
/// `/proc` has CPU times in hundredths of a second.
const US_PER_TICK: f64 = 10_000.0;

/// A server that is ended when it is dropped.
pub(super) struct Server {
    child: Child,
    pub(super) port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The result of a load.
#[derive(Clone, Copy)]
pub(super) struct Measured {
    pub(super) per_second: f64,
    pub(super) cpu_us: f64,
    /// The utilisation of the load generator's core: near 1, the load generator is the bottleneck.
    pub(super) load_busy: f64,
}

impl Server {
    /// Starts a server with the arguments for a port, and waits until it listens.
    pub(super) fn start(
        program: &Path,
        arguments: impl Fn(u16) -> Vec<String>,
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new("setpriv")
            .args(DIES_WITH_US)
            .args(["taskset", "-c", "0"])
            .arg(program)
            .args(arguments(port))
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut server = Self { child, port };
        for _ in 0..100 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(server);
            }
            if let Some(status) = server.child.try_wait()? {
                bail!("{} has ended: {status}", program.display());
            }
            thread::park_timeout(Duration::from_millis(50));
        }
        bail!("{} does not listen", program.display())
    }

    /// Returns the CPU time so far, in hundredths of a second.
    fn ticks(&self) -> anyhow::Result<f64> {
        ticks(&self.child.id().to_string(), [11, 12])
    }

    pub(super) fn resident_mib(&self) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.unwrap_or(0.0) / 1024.0)
    }

    /// Runs a load, which returns the requests per second and the number of requests.
    pub(super) fn measure(
        &self,
        load: impl FnOnce(&Self) -> anyhow::Result<(f64, f64)>,
    ) -> anyhow::Result<Measured> {
        let before = (self.ticks()?, ticks_of_loads()?);
        let (per_second, requests) = load(self)?;
        let after = (self.ticks()?, ticks_of_loads()?);
        let requests = requests.max(1.0);
        // The CPU time of the load generator includes its start, and the time that it reports does not.
        let load_us = (after.1 - before.1) * US_PER_TICK * per_second / requests;
        Ok(Measured {
            per_second,
            cpu_us: (after.0 - before.0) * US_PER_TICK / requests,
            load_busy: (load_us / 1_000_000.0).min(1.0),
        })
    }
}

/// Returns the CPU time of all load generators that have ended, which are children of this process.
fn ticks_of_loads() -> anyhow::Result<f64> {
    ticks("self", [13, 14])
}

/// Adds up two fields of `/proc/…/stat`, counted after the name.
fn ticks(process: &str, fields: [usize; 2]) -> anyhow::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let after_name: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let tick = |place: usize| after_name.get(place).and_then(|text| text.parse::<f64>().ok());
    Ok(fields.into_iter().filter_map(tick).sum())
}

/// Runs a load generator on core 1, with a time limit, and returns its output.
pub(super) fn load(program: &Path, arguments: &[String]) -> anyhow::Result<String> {
    let output = Command::new("setpriv")
        .args(DIES_WITH_US)
        .args(["timeout", PATIENCE, "taskset", "-c", "1"])
        .arg(program)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} {} failed ({}): {said}",
        program.display(),
        arguments.join(" "),
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Splits arguments at blanks.
pub(super) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
