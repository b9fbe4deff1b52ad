//! The files in which Linux says how much it has to do: cgroup v2 for a container, `/proc` for a machine.
//!
//! Always   A file that is missing, or says something else than it should, is a reading that says so; never
//!          a panic, and never a number made up. What the container does not tell is asked of the machine.
//!          A bound counts wherever it is set, on the process's cgroup or on one that it is in: the one that is nearest
//!          to being reached is told, with what all in that cgroup have used of it.
//! Rounding Down to thousandths, and to 1000 at the most.

use super::signal::{Signal, Unread};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use tidegate_core::Timestamp;

/// No file that is read here is longer; of one that is, the rest is not read.
const FILE_BYTES_MAX: u64 = 64 * 1024;

pub(super) struct Machine {
    root: PathBuf,
    /// The directories of the process's own cgroup and of those that it is in, up to where cgroup v2 is mounted.
    cgroups: Vec<PathBuf>,
    /// Processor time used and what there was to be used, when they were last looked at.
    last_cpu: Vec<Cpu>,
}

/// Processor time, in units that differ from source to source.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cpu {
    used: u64,
    all: u64,
    of: Whose,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Machine,
    /// By how far it is from the process's own.
    Cgroup(usize),
}

type Answer = Result<u32, Unread>;

impl Machine {
    pub(super) fn new(root: PathBuf) -> Self {
        let cgroups = own_cgroups(&root);
        Self { root, cgroups, last_cpu: Vec::new() }
    }

    /// What a signal says, in thousandths.
    pub(super) fn read(&mut self, signal: Signal, now: Timestamp) -> Answer {
        match signal {
            Signal::Cpu => self.cpu(now),
            Signal::Memory => self.memory(),
            Signal::CpuPressure => self.pressure("cpu"),
            Signal::MemoryPressure => self.pressure("memory"),
            Signal::IoPressure => self.pressure("io"),
        }
    }

    fn cpu(&mut self, now: Timestamp) -> Answer {
        let seen = match self.container_cpu(now) {
            Err(Unread::Missing { .. }) => vec![self.machine_cpu()?],
            seen => seen?,
        };
        let share = |seen: &Cpu| {
            let last = self.last_cpu.iter().find(|last| last.of == seen.of)?;
            let used = seen.used.saturating_sub(last.used);
            // Otherwise no tick has passed, or the counters have begun anew.
            let all = seen.all.checked_sub(last.all).filter(|all| *all > 0)?;
            Some(thousandths(used, all))
        };
        let most = seen.iter().filter_map(share).max();
        self.last_cpu = seen;
        most.ok_or(Unread::TooEarly)
    }

    /// Of each cgroup that has a quota; where none has, of the process's own, which then has all processors.
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

    /// So much time in a period; `None` where that is not bounded.
    fn quota(&self, level: usize) -> Result<Option<(u64, u64)>, Unread> {
        let max = self.in_cgroup(level, "cpu.max")?;
        match max.words()[..] {
            ["max", _] => Ok(None),
            [quota, period] => Ok(Some((max.number(quota)?, max.number(period)?.max(1)))),
            _ => Err(max.garbled(CPU_MAX)),
        }
    }

    /// Used: microseconds by the cgroup. All: those that it may use.
    fn cgroup_cpu(&self, level: usize, quota: (u64, u64), now: Timestamp) -> Result<Cpu, Unread> {
        let used = self.in_cgroup(level, "cpu.stat")?.number_after("usage_usec")?;
        let (quota, period) = quota;
        let all = u128::from(now.as_micros()) * u128::from(quota) / u128::from(period);
        Ok(Cpu { used, all: u64::try_from(all).unwrap_or(u64::MAX), of: Whose::Cgroup(level) })
    }

    /// How many processors the machine has.
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

    /// In ticks, of all processors together.
    fn machine_cpu(&self) -> Result<Cpu, Unread> {
        let stat = self.in_root("proc/stat")?;
        let line = stat.text.lines().find_map(|line| line.strip_prefix("cpu "));
        let line = line.ok_or_else(|| stat.garbled(CPU_LINE))?;
        let ticks: Vec<u64> =
            line.split_whitespace().map(|word| stat.number(word)).collect::<Result<_, _>>()?;
        // user nice system idle iowait irq softirq steal; what guests use is in the first two already.
        let Some((&[_, _, _, idle], rest)) = ticks.split_first_chunk::<4>() else {
            return Err(stat.garbled(CPU_LINE));
        };
        let all = ticks.iter().take(8).fold(0, |sum: u64, ticks| sum.saturating_add(*ticks));
        // Waiting for disks is doing nothing.
        let idle_test = idle.saturating_add(rest.first().copied().unwrap_or(0));
        Ok(Cpu { used: all.saturating_sub(idle_test), all, of: Whose::Machine })
    }

    fn memory(&self) -> Answer {
        let mut most = None;
        for level in 0..self.cgroups.len() {
            most = most.max(present(self.cgroup_memory(level))?.flatten());
        }
        most.map_or_else(|| self.machine_memory(), Ok)
    }

    /// `None` where the cgroup may have all that the machine has.
    fn cgroup_memory(&self, level: usize) -> Result<Option<u32>, Unread> {
        let max = self.in_cgroup(level, "memory.max")?;
        let [max_word] = max.words()[..] else { return Err(max.garbled("a number or `max`")) };
        if max_word == "max" {
            return Ok(None);
        }
        let current = self.in_cgroup(level, "memory.current")?;
        let used = current.number(current.text.trim())?;
        // Pages of files that nobody has used lately are dropped before anything else is.
        let stat = self.in_cgroup(level, "memory.stat").ok();
        let spare = stat.and_then(|stat| stat.number_after("inactive_file").ok()).unwrap_or(0);
        Ok(Some(thousandths(used.saturating_sub(spare), max.number(max_word)?)))
    }

    fn machine_memory(&self) -> Answer {
        let meminfo = self.in_root("proc/meminfo")?;
        let total = meminfo.number_after("MemTotal:")?;
        let available = meminfo.number_after("MemAvailable:")?;
        Ok(thousandths(total.saturating_sub(available), total))
    }

    fn pressure(&self, of: &str) -> Answer {
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

/// The directory of this process's cgroup, and those above it. In a container of its own that is the root of the mount; a
/// container that sees the host's path, and not what is there, has the root too.
fn own_cgroups(root: &Path) -> Vec<PathBuf> {
    let mount = root.join("sys/fs/cgroup");
    let lines = Contents::of(root.join("proc/self/cgroup"));
    let lines = lines.as_ref().map_or("", |lines| &lines.text).lines();
    let Some(path) = lines.into_iter().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    // A path that climbs is another namespace's.
    let own = Some(mount.join(path)).filter(|_| !path.split('/').any(|part| part == ".."));
    let is_cgroup = |directory: &PathBuf| directory.join("cgroup.controllers").is_file();
    let own = own.filter(is_cgroup).or_else(|| Some(mount.clone()).filter(is_cgroup));
    let above = own.iter().flat_map(|own| own.ancestors());
    above.take_while(|directory| directory.starts_with(&mount)).map(Path::to_path_buf).collect()
}

/// What is not there, or is not switched on, bounds nobody.
fn present<T>(read: Result<T, Unread>) -> Result<Option<T>, Unread> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(Unread::Missing { .. }) => Ok(None),
        Err(unread) => Err(unread),
    }
}

/// A file, read.
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

    /// The number behind this word, at the beginning of a line.
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

/// `12.34` hundredths as 123 thousandths.
fn percent(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let tenths = part.chars().next().map_or(Some(0), |digit| digit.to_digit(10))?;
    let whole: u32 = whole.parse().ok()?;
    Some(whole.checked_mul(10)?.checked_add(tenths)?.min(1_000))
}
