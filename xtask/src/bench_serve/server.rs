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
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let tick = |place: usize| fields.get(place).and_then(|text| text.parse::<f64>().ok());
        Ok(tick(11).unwrap_or(0.0) + tick(12).unwrap_or(0.0))
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
        let before = self.ticks()?;
        let (per_second, requests) = load(self)?;
        let ticks = self.ticks()? - before;
        Ok(Measured { per_second, cpu_us: ticks * US_PER_TICK / requests.max(1.0) })
    }
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
