//! Signals of load: what can be watched, what it said last, and why it could not be read.

use super::machine::Machine;
use std::fmt;
use std::path::PathBuf;
use tidegate_core::{Timestamp, Watermarks};

/// Something that tells how much the machine has to do. All are shares of what there is.
///
/// In a container with cgroup v2 it is the container's share; else the machine's.
///
/// ```
/// use tidegate::load::Signal;
///
/// assert_eq!(Signal::CpuPressure.to_string(), "cpu pressure");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Signal {
    /// Processor time used since the last look, of what may be used: `cpu.stat` and `cpu.max`, or
    /// `/proc/stat`.
    Cpu,
    /// Memory in use that cannot just be dropped: `memory.current` without `inactive_file`, of
    /// `memory.max`; or `/proc/meminfo`.
    Memory,
    /// The share of the last 10 s in which some task waited for a processor: `cpu.pressure`, or
    /// `/proc/pressure/cpu`.
    CpuPressure,
    /// The same for memory: `memory.pressure`, or `/proc/pressure/memory`.
    MemoryPressure,
    /// The same for disks: `io.pressure`, or `/proc/pressure/io`.
    IoPressure,
}

impl Signal {
    /// The marks unless told: where the queue before a processor becomes long (75 % to 90 % used, or 30 % to
    /// 50 % of the time somebody waits), where memory runs out (85 % to 95 %), where getting memory takes
    /// time (5 % to 15 %), and where disks hold everybody up (40 % to 60 %).
    ///
    /// ```
    /// # use tidegate::load::{Watermarks, Signal};
    /// assert_eq!(Signal::Cpu.marks(), Watermarks::percent(75..=90));
    /// ```
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

/// What a signal said when it was last read.
///
/// ```
/// use tidegate::load::{Shedder, Signal};
///
/// let shedder = Shedder::new();
/// shedder.sample();
/// let memory = shedder.readings().into_iter().find(|reading| reading.signal == Signal::Memory);
/// match memory.expect("it is watched unless told").value {
///     Ok(thousandths) => assert!(thousandths <= 1_000),
///     Err(unread) => println!("{unread}"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// Which signal.
    pub signal: Signal,
    /// Where it begins to shed, and where it stops.
    pub marks: Watermarks,
    /// In thousandths of what there is; or why that is not known.
    pub value: Result<u32, Unread>,
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Ok(value) => {
                write!(f, "{}: {}.{} % ({})", self.signal, value / 10, value % 10, self.marks)
            }
            Err(unread) => write!(f, "{} is not to be had here: {unread}", self.signal),
        }
    }
}

/// Why a signal could not be read. It sheds nothing then.
///
/// ```
/// let shedder = tidegate::load::Shedder::builder().root("/nowhere").build();
/// shedder.sample();
/// let pressure = shedder.readings()[2].to_string();
/// assert!(pressure.starts_with("cpu pressure is not to be had here: /nowhere/proc/pressure/cpu"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unread {
    /// The file is not there, or may not be read: another system than Linux, cgroup v1, a kernel without
    /// pressure information (boot it with `psi=1`).
    Missing {
        /// Where it was looked for, last.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// The file does not say what it should.
    Garbled {
        /// Which file.
        path: PathBuf,
        /// What was looked for in it.
        wanted: &'static str,
    },
    /// It is a difference between two looks, and there was only one yet, or no time between them.
    TooEarly,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Garbled { path, wanted } => {
                write!(f, "{} does not say {wanted}", path.display())
            }
            Self::TooEarly => f.write_str("it takes two looks, some time apart"),
        }
    }
}

impl std::error::Error for Unread {}

/// A signal that is watched.
pub(super) struct Watch {
    reading: Reading,
}

impl Watch {
    pub(super) fn new(signal: Signal, marks: Watermarks) -> Self {
        Self { reading: Reading { signal, marks, value: Err(Unread::TooEarly) } }
    }

    /// Reads the signal; says where it pushes the level, if it says anything.
    pub(super) fn look(&mut self, machine: &mut Machine, now: Timestamp) -> Option<i32> {
        self.reading.value = machine.read(self.reading.signal, now);
        let value = self.reading.value.as_ref().ok()?;
        Some(self.reading.marks.push(*value))
    }

    pub(super) fn reading(&self) -> Reading {
        self.reading.clone()
    }
}
