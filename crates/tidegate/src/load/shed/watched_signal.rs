//! Watched signals, each with its watermarks and its last reading.

use super::machine::Machine;
use super::signal::{Reading, Signal, Unread};
use tidegate_core::{Timestamp, Watermarks};

/// A watched signal with its last reading.
pub(super) struct WatchedSignal {
    reading: Reading,
}

impl WatchedSignal {
    pub(super) fn new(signal: Signal, marks: Watermarks) -> Self {
        Self { reading: Reading { signal, marks, value: Err(Unread::TooEarly) } }
    }

    /// Reads the signal, and returns by how much it raises or lowers the level; `None` if it could not be read.
    pub(super) fn read(&mut self, machine: &mut Machine, now: Timestamp) -> Option<i32> {
        self.reading.value = machine.read(self.reading.signal, now);
        let value = self.reading.value.as_ref().ok()?;
        Some(self.reading.marks.push(*value))
    }

    pub(super) fn reading(&self) -> Reading {
        self.reading.clone()
    }
}
