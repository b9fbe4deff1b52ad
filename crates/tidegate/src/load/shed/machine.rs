//! The files in which Linux reports load: cgroup v2 for a container, `/proc` for the machine.
//!
//! Always   A file that is missing or has unexpected content gives a reading that says so; never a panic or an invented
//!          number. What the container does not report is read from the machine.
//!          A bound counts on the process's own cgroup and on every cgroup above it. The reading is that of the bound which
//!          is nearest to being reached, with everything that its cgroup uses.
//! Rounding Down to thousandths, and to at most 1000.

use super::signal::{Signal, Unread};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use tidegate_core::Timestamp;

/// The longest file; the rest of a longer one is ignored.
const FILE_BYTES_MAX: u64 = 64 * 1024;

pub(super) struct Machine {
    root: PathBuf,
    /// The directories of the process's cgroup and of those above it, up to the mount of cgroup v2.
    cgroups: Vec<PathBuf>,
    /// Used and available processor time at the last reading.
    last_cpu: Vec<Cpu>,
}

/// Processor time, in units that depend on the source.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cpu {
    used: u64,
    all: u64,
    source: CpuSource,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CpuSource {
    Machine,
    /// At this distance from the process's own cgroup.
    Cgroup(usize),
}

type Value = Result<u32, Unread>;

impl Machine {
    pub(super) fn new(root: PathBuf) -> Self {
        let cgroups = own_cgroups(&root);
        Self { root, cgroups, last_cpu: Vec::new() }
    }

    /// Reads a signal, in thousandths.
    pub(super) fn read(&mut self, signal: Signal, now: Timestamp) -> Value {
        match signal {
            Signal::Cpu => self.cpu(now),
            Signal::Memory => self.memory(),
            Signal::CpuPressure => self.pressure("cpu"),
            Signal::MemoryPressure => self.pressure("memory"),
            Signal::IoPressure => self.pressure("io"),
        }
    }

    fn cpu(&mut self, now: Timestamp) -> Value {
        let seen = match self.container_cpu(now) {
            Err(Unread::Missing { .. }) => vec![self.machine_cpu()?],
            seen => seen?,
        };
        let share = |seen: &Cpu| {
            let last = self.last_cpu.iter().find(|last| last.source == seen.source)?;
            let used = seen.used.saturating_sub(last.used);
            // Without a difference, no tick has passed, or the counters were reset.
            let all = seen.all.checked_sub(last.all).filter(|all| *all > 0)?;
            Some(thousandths(used, all))
        };
        let most = seen.iter().filter_map(share).max();
        self.last_cpu = seen;
        most.ok_or(Unread::TooEarly)
    }

    /// Reads each cgroup with a quota; if none has one, the process's own, which then may use all processors.
    fn container_cpu(&self, now: Timestamp) -> Result<Vec<Cpu>, Unread> {
        let mut seen = Vec::new();
        for level in 0..self.cgroups.len() {
            if let Some(Some(quota)) = present(self.quota(level))? {
                seen.extend(present(self.cgroup_cpu(level, quota, now))?);
            }
        }
        if seen.is_empty() {
            self.quota(0)?;
            seen.push(self.cgroup_cpu(0, (self.processors(), 1), now)?);
        }
        Ok(seen)
    }

    /// Returns the processor time per period; `None` if it is unbounded.
    fn quota(&self, level: usize) -> Result<Option<(u64, u64)>, Unread> {
        let max = self.in_cgroup(level, "cpu.max")?;
        match max.words()[..] {
            ["max", _] => Ok(None),
            [quota, period] => Ok(Some((max.number(quota)?, max.number(period)?.max(1)))),
            _ => Err(max.garbled(CPU_MAX)),
        }
    }

    /// Reads the microseconds that a cgroup has used, and those that it may use.
    fn cgroup_cpu(&self, level: usize, quota: (u64, u64), now: Timestamp) -> Result<Cpu, Unread> {
        let used = self.in_cgroup(level, "cpu.stat")?.number_after("usage_usec")?;
        let (quota, period) = quota;
        let all = u128::from(now.as_micros()) * u128::from(quota) / u128::from(period);
        Ok(Cpu {
            used,
            all: u64::try_from(all).unwrap_or(u64::MAX),
            source: CpuSource::Cgroup(level),
        })
    }

    /// Returns the number of processors of the machine.
    fn processors(&self) -> u64 {
        let listed = self.in_root("proc/stat").map_or(0, |stat| {
            let is_one = |line: &&str| {
                line.strip_prefix("cpu")
                    .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            };
            stat.text.lines().filter(is_one).count()
        });
        let known = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        u64::try_from(if listed > 0 { listed } else { known }).unwrap_or(1)
    }

    /// Reads the ticks of all processors together.
    fn machine_cpu(&self) -> Result<Cpu, Unread> {
        let stat = self.in_root("proc/stat")?;
        let line = stat.text.lines().find_map(|line| line.strip_prefix("cpu "));
        let line = line.ok_or_else(|| stat.garbled(CPU_LINE))?;
        let ticks: Vec<u64> =
            line.split_whitespace().map(|word| stat.number(word)).collect::<Result<_, _>>()?;
        // user nice system idle iowait irq softirq steal; the time of guests is included in the first two.
        let Some((&[_, _, _, idle], rest)) = ticks.split_first_chunk::<4>() else {
            return Err(stat.garbled(CPU_LINE));
        };
        let all = ticks.iter().take(8).fold(0, |sum: u64, ticks| sum.saturating_add(*ticks));
        // Waiting for disks counts as idle.
        let idle = idle.saturating_add(rest.first().copied().unwrap_or(0));
        Ok(Cpu { used: all.saturating_sub(idle), all, source: CpuSource::Machine })
    }

    fn memory(&self) -> Value {
        let mut most = None;
        for level in 0..self.cgroups.len() {
            most = most.max(present(self.cgroup_memory(level))?.flatten());
        }
        most.map_or_else(|| self.machine_memory(), Ok)
    }

    /// Reads the memory of a cgroup; `None` if it is unbounded.
    fn cgroup_memory(&self, level: usize) -> Result<Option<u32>, Unread> {
        let max = self.in_cgroup(level, "memory.max")?;
        let [max_word] = max.words()[..] else { return Err(max.garbled("a number or `max`")) };
        if max_word == "max" {
            return Ok(None);
        }
        let current = self.in_cgroup(level, "memory.current")?;
        let used = current.number(current.text.trim())?;
        // Pages of files that were not used lately are dropped first when memory is short.
        let stat = self.in_cgroup(level, "memory.stat").ok();
        let spare = stat.and_then(|stat| stat.number_after("inactive_file").ok()).unwrap_or(0);
        Ok(Some(thousandths(used.saturating_sub(spare), max.number(max_word)?)))
    }

    fn machine_memory(&self) -> Value {
        let meminfo = self.in_root("proc/meminfo")?;
        let total = meminfo.number_after("MemTotal:")?;
        let available = meminfo.number_after("MemAvailable:")?;
        Ok(thousandths(total.saturating_sub(available), total))
    }

    fn pressure(&self, of: &str) -> Value {
        let file = match self.in_cgroup(0, &format!("{of}.pressure")) {
            Err(Unread::Missing { .. }) => self.in_root(&format!("proc/pressure/{of}"))?,
            file => file?,
        };
        let line = file.text.lines().find_map(|line| line.strip_prefix("some "));
        let words = line.map(str::split_whitespace);
        let average =
            words.and_then(|mut words| words.find_map(|word| word.strip_prefix("avg10=")));
        average.and_then(percent).ok_or_else(|| file.garbled("`some avg10=`, in hundredths"))
    }

    fn in_root(&self, path: &str) -> Result<Contents, Unread> {
        Contents::of(self.root.join(path))
    }

    fn in_cgroup(&self, level: usize, name: &str) -> Result<Contents, Unread> {
        match self.cgroups.get(level) {
            Some(cgroup) => Contents::of(cgroup.join(name)),
            None => Err(Unread::Missing {
                path: self.root.join("sys/fs/cgroup"),
                why: "there is no cgroup v2".to_owned(),
            }),
        }
    }
}

const CPU_MAX: &str = "a quota and a period";
const CPU_LINE: &str = "`cpu` and at least four numbers";

/// Returns the directory of this process's cgroup, and those above it. In a container with its own cgroup namespace, that is
/// the root of the mount; a container that sees a path of the host, which does not exist in it, gets the root too.
fn own_cgroups(root: &Path) -> Vec<PathBuf> {
    let mount = root.join("sys/fs/cgroup");
    let lines = Contents::of(root.join("proc/self/cgroup"));
    let lines = lines.as_ref().map_or("", |lines| &lines.text).lines();
    let Some(path) = lines.into_iter().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    // A path with `..` belongs to another namespace.
    let own = Some(mount.join(path)).filter(|_| !path.split('/').any(|part| part == ".."));
    let is_cgroup = |directory: &PathBuf| directory.join("cgroup.controllers").is_file();
    let own = own.filter(is_cgroup).or_else(|| Some(mount.clone()).filter(is_cgroup));
    let above = own.iter().flat_map(|own| own.ancestors());
    above.take_while(|directory| directory.starts_with(&mount)).map(Path::to_path_buf).collect()
}

/// Turns a missing file into `None`: a controller that is not enabled sets no bound.
fn present<T>(read: Result<T, Unread>) -> Result<Option<T>, Unread> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(Unread::Missing { .. }) => Ok(None),
        Err(unread) => Err(unread),
    }
}

/// The content of a file.
struct Contents {
    path: PathBuf,
    text: String,
}

impl Contents {
    fn of(path: PathBuf) -> Result<Self, Unread> {
        let mut text = Vec::new();
        let read =
            File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut text));
        match read {
            Ok(_) => Ok(Self { path, text: String::from_utf8_lossy(&text).into_owned() }),
            Err(error) => Err(Unread::Missing { path, why: error.to_string() }),
        }
    }

    fn words(&self) -> Vec<&str> {
        self.text.split_whitespace().collect()
    }

    /// Returns the number after this word at the start of a line.
    fn number_after(&self, word: &'static str) -> Result<u64, Unread> {
        let mut lines = self.text.lines().map(str::split_whitespace);
        let found = lines.find_map(|mut words| (words.next() == Some(word)).then(|| words.next()));
        let number = found.flatten().and_then(|number| number.parse().ok());
        number.ok_or_else(|| self.garbled(word))
    }

    fn number(&self, word: &str) -> Result<u64, Unread> {
        word.parse().map_err(|_| self.garbled("a number"))
    }

    fn garbled(&self, wanted: &'static str) -> Unread {
        Unread::Garbled { path: self.path.clone(), wanted }
    }
}

fn thousandths(used: u64, all: u64) -> u32 {
    let share = u128::from(used) * 1_000 / u128::from(all.max(1));
    u32::try_from(share).unwrap_or(1_000).min(1_000)
}

/// Converts a percentage, such as `12.34`, to thousandths.
fn percent(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let tenths = part.chars().next().map_or(Some(0), |digit| digit.to_digit(10))?;
    let whole: u32 = whole.parse().ok()?;
    Some(whole.checked_mul(10)?.checked_add(tenths)?.min(1_000))
}
