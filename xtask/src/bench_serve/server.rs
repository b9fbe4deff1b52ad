//! A server on core 0, what it has used, and loads for it from core 1.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

/// Seconds after which a load is given up.
const PATIENCE: &str = "100";
/// What we start is told to end when we are gone, also if somebody has killed us.
const DIES_WITH_US: [&str; 2] = ["--pdeathsig", "TERM"];
/// `/proc` counts processor time in hundredths of a second.
const US_PER_TICK: f64 = 10_000.0;

/// A server that is ended when it is dropped.
pub(super) struct Server {
    child: Child,
    pub(super) port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a load came to.
#[derive(Clone, Copy)]
pub(super) struct Measured {
    pub(super) per_second: f64,
    pub(super) cpu_us: f64,
    /// How much of its core the load has used: near 1, it is the load that is measured.
    pub(super) load_busy: f64,
}

impl Server {
    /// Starts it, told by `arguments` on which port, and waits until it listens.
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

    /// Processor time so far, in hundredths of a second.
    fn ticks(&self) -> anyhow::Result<f64> {
        ticks(&self.child.id().to_string(), [11, 12])
    }

    pub(super) fn resident_mib(&self) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.unwrap_or(0.0) / 1024.0)
    }

    /// Runs a load, which says how many requests a second there were and how many in all.
    pub(super) fn measure(
        &self,
        load: impl FnOnce(&Self) -> anyhow::Result<(f64, f64)>,
    ) -> anyhow::Result<Measured> {
        let before = (self.ticks()?, ticks_of_loads()?);
        let (per_second, requests) = load(self)?;
        let after = (self.ticks()?, ticks_of_loads()?);
        let requests = requests.max(1.0);
        // Its own start is in its processor time, and not in the time that it says it took.
        let load_us = (after.1 - before.1) * US_PER_TICK * per_second / requests;
        Ok(Measured {
            per_second,
            cpu_us: (after.0 - before.0) * US_PER_TICK / requests,
            load_busy: (load_us / 1_000_000.0).min(1.0),
        })
    }
}

/// What all loads have used that have ended: a process knows that of its children.
fn ticks_of_loads() -> anyhow::Result<f64> {
    ticks("self", [13, 14])
}

/// The sum of these two fields of `/proc/…/stat`, counted after the name.
fn ticks(process: &str, fields: [usize; 2]) -> anyhow::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let after_name: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let tick = |place: usize| after_name.get(place).and_then(|text| text.parse::<f64>().ok());
    Ok(fields.into_iter().filter_map(tick).sum())
}

/// What a program says that makes load from core 1, and is ended if it does not end by itself.
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

/// Words, as a command line has them.
pub(super) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
