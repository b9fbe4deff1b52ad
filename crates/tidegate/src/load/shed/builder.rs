//! The options of a shedder: its signals, and its bounds on requests in flight.

use super::machine::Machine;
use super::signal::Signal;
use super::watched_signal::WatchedSignal;
use super::{EVERY, Inner, NEVER, Sampler, Shedder};
use crate::clock::{Clock, SystemClock};
use crate::sync::{Arc, AtomicU64, Mutex};
use std::path::PathBuf;
use tidegate_core::{Priority, Span, Watermarks};

/// The default share of `in_flight_max` for each priority, in percent: a fifth is kept for critical traffic, as in Stripe's
/// example, and half for requests that a user waits for.
const SHARES: [u64; Priority::ALL.len()] = [50, 65, 80, 100];

/// The options of a shedder; made by [`Shedder::builder`].
///
/// ```
/// use std::time::Duration;
/// use tidegate::load::{Watermarks, Priority, Shedder, Signal};
///
/// let shedder = Shedder::builder()
///     .watch(Signal::MemoryPressure, Watermarks::percent(5..=10))
///     .in_flight_max(200)
///     .share(Priority::Batch, 20)
///     .every(Duration::from_millis(500))
///     .build();
/// ```
#[derive(Clone, Debug)]
#[must_use = "no shedder is made until `build` is called"]
pub struct ShedderBuilder {
    root: PathBuf,
    every: Span,
    /// `None` for the default signals.
    watches: Option<Vec<(Signal, Watermarks)>>,
    in_flight_max: Option<u64>,
    shares: [u64; Priority::ALL.len()],
}

impl ShedderBuilder {
    pub(super) fn new() -> Self {
        Self {
            root: PathBuf::from("/"),
            every: EVERY,
            watches: None,
            in_flight_max: None,
            shares: SHARES,
        }
    }

    /// Watches this signal, and no others than those given to this function. By default, a shedder watches
    /// [processor](Signal::Cpu), [memory](Signal::Memory) and the pressure on both, each with [its marks](Signal::marks). For a
    /// signal that is given twice, the last marks count.
    pub fn watch(mut self, signal: Signal, marks: Watermarks) -> Self {
        let watches = self.watches.get_or_insert_default();
        watches.retain(|(watched, _)| *watched != signal);
        watches.push((signal, marks));
        self
    }

    /// Watches no signal: only the requests in flight count.
    pub fn watch_nothing(mut self) -> Self {
        self.watches = Some(Vec::new());
        self
    }

    /// Sets how many requests may be in flight, critical ones included. Default: unlimited.
    pub fn in_flight_max(mut self, max: u64) -> Self {
        self.in_flight_max = Some(max);
        self
    }

    /// Sets the percentage of it up to which requests of this priority are admitted; the rest is kept for higher priorities.
    /// Default: batch 50, sheddable 65, normal 80; critical is always 100. No priority gets more than the one above it.
    ///
    /// ```
    /// # use tidegate::load::{Priority, Shedder};
    /// let shedder = Shedder::builder().in_flight_max(10).share(Priority::Normal, 90).build();
    /// let normal: Vec<_> = (0..9).map(|_| shedder.try_enter(Priority::Normal).unwrap()).collect();
    /// assert!(shedder.try_enter(Priority::Normal).is_err());
    /// ```
    pub fn share(mut self, priority: Priority, percent: u64) -> Self {
        if priority != Priority::Critical {
            self.shares[priority as usize] = percent.min(100);
        }
        self
    }

    /// Sets the shortest interval between readings of the signals. Default: 200 ms.
    pub fn every(mut self, every: impl Into<Span>) -> Self {
        self.every = every.into();
        self
    }

    /// Sets the directory that contains `proc` and `sys`. Default: `/`. For tests, and to watch another container.
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = root.into();
        self
    }

    /// Makes a shedder that uses the machine's clock.
    pub fn build(self) -> Shedder {
        self.build_with_clock(SystemClock::new())
    }

    /// Makes a shedder that uses `clock`.
    pub fn build_with_clock<C: Clock>(self, clock: C) -> Shedder<C> {
        let ceilings = self.ceilings();
        let watches = self.watches.unwrap_or_else(default_watches);
        let due = if watches.is_empty() { NEVER } else { 0 };
        let watches =
            watches.into_iter().map(|(signal, marks)| WatchedSignal::new(signal, marks)).collect();
        let sampler = Sampler { machine: Machine::new(self.root), watches, last: None };
        let inner = Inner {
            clock,
            ceilings,
            in_flight: AtomicU64::new(0),
            level: AtomicU64::new(0),
            numbers: Priority::ALL.map(|_| AtomicU64::new(0)),
            due: AtomicU64::new(due),
            every: self.every,
            sampler: Mutex::new(sampler),
        };
        Shedder { inner: Arc::new(inner) }
    }

    fn ceilings(&self) -> [u64; Priority::ALL.len()] {
        let max = self.in_flight_max.unwrap_or(u64::MAX);
        let mut share = 100;
        let mut ceilings = [max; Priority::ALL.len()];
        // From the highest priority down, so that none gets more than the one above it.
        for (ceiling, own) in ceilings.iter_mut().zip(self.shares).rev() {
            share = own.min(share);
            let part = u128::from(max) * u128::from(share) / 100;
            // A priority with a share gets at least one permit, even if there is only one.
            *ceiling = u64::try_from(part).unwrap_or(max).max(max.min(share).min(1));
        }
        ceilings
    }
}

fn default_watches() -> Vec<(Signal, Watermarks)> {
    let signals = [Signal::Cpu, Signal::Memory, Signal::CpuPressure, Signal::MemoryPressure];
    signals.map(|signal| (signal, signal.marks())).to_vec()
}
