//! Signals of load: their kinds, their last readings, and why they could not be read.

use std::fmt;
use std::path::PathBuf;
use tidegate_core::Watermarks;

/// A measure of the machine's load, as a share of its capacity.
///
/// In a container with cgroup v2 it is the load of the container, else that of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Signal {
    /// The share of the available processor time that was used since the last reading: `cpu.stat` and `cpu.max`, or
    /// `/proc/stat`.
    Cpu,
    /// The share of memory in use, without caches that can be dropped: `memory.current` less `inactive_file`, of
    /// `memory.max`; or `/proc/meminfo`.
    Memory,
    /// The share of the last 10 s in which a task waited for a processor: `cpu.pressure`, or `/proc/pressure/cpu`.
    CpuPressure,
    /// The same for memory: `memory.pressure`, or `/proc/pressure/memory`.
    MemoryPressure,
    /// The same for disks: `io.pressure`, or `/proc/pressure/io`.
    IoPressure,
}

impl Signal {
    /// Returns the default watermarks: where the queue for a processor becomes long (75 % to 90 % used, or 30 % to 50 % of the
    /// time with a waiting task), where memory runs out (85 % to 95 %), where allocating memory takes time (5 % to 15 %), and
    /// where disks are the bottleneck (40 % to 60 %).
    pub fn marks(self) -> Watermarks {
        Watermarks::percent(match self {
            Self::Cpu => 75..=90,
            Self::Memory => 85..=95,
            Self::CpuPressure => 30..=50,
            Self::MemoryPressure => 5..=15,
            Self::IoPressure => 40..=60,
        })
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::CpuPressure => "cpu pressure",
            Self::MemoryPressure => "memory pressure",
            Self::IoPressure => "io pressure",
        })
    }
}

/// The last reading of a signal.
///
/// ```
/// use tidegate::load::{Shedder, Signal};
///
/// let shedder = Shedder::new();
/// shedder.sample();
/// let memory = shedder.readings().into_iter().find(|reading| reading.signal == Signal::Memory);
/// match memory.expect("it is watched by default").value {
///     Ok(thousandths) => assert!(thousandths <= 1_000),
///     Err(unread) => println!("{unread}"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// The signal.
    pub signal: Signal,
    /// Its watermarks.
    pub marks: Watermarks,
    /// The reading in thousandths of the capacity, or why there is none.
    pub value: Result<u32, Unread>,
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Ok(value) => {
                write!(f, "{}: {}.{} % ({})", self.signal, value / 10, value % 10, self.marks)
            }
            Err(unread) => write!(f, "{} cannot be read: {unread}", self.signal),
        }
    }
}

/// The reason why a signal could not be read. Such a signal sheds nothing.
///
/// ```
/// let shedder = tidegate::load::Shedder::builder().root("/nowhere").build();
/// shedder.sample();
/// let pressure = shedder.readings()[2].to_string();
/// assert!(pressure.starts_with("cpu pressure cannot be read: /nowhere/proc/pressure/cpu"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unread {
    /// The file does not exist or is not readable: the system is not Linux, has cgroup v1, or a kernel without pressure
    /// information (boot it with `psi=1`).
    Missing {
        /// The path that was tried last.
        path: PathBuf,
        /// The system's error.
        why: String,
    },
    /// The file does not have the expected content.
    Garbled {
        /// The file.
        path: PathBuf,
        /// The expected content.
        wanted: &'static str,
    },
    /// The signal is a difference between two readings, and there was only one yet, or no time between them.
    TooEarly,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Garbled { path, wanted } => {
                write!(f, "{} does not contain {wanted}", path.display())
            }
            Self::TooEarly => f.write_str("it takes two readings, some time apart"),
        }
    }
}

impl std::error::Error for Unread {}
