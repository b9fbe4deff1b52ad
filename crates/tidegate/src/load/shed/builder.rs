//! What a shedder watches, and how much of what may be in flight.

use super::machine::Machine;
use super::signal::{Signal, Watch};
use super::{Desk, EVERY, Inner, NEVER, Shedder};
use crate::clock::{Clock, SystemClock};
use crate::sync::{Arc, AtomicU64, Mutex};
use std::path::PathBuf;
use tidegate_core::{Priority, Span, Watermarks};

/// The share of what may be in flight that requests of each priority fill, in hundredths: a fifth is kept
/// for critical traffic, as in Stripe's example, and half for what somebody waits for.
const SHARES: [u64; Priority::ALL.len()] = [50, 65, 80, 100];

/// What a shedder goes by; made by [`Shedder::builder`].
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
#[must_use = "nothing is watched until it is built"]
pub struct ShedderBuilder {
    root: PathBuf,
    every: Span,
    /// `None` is what is watched unless told.
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

    /// Watches this signal, and no others than those told here. Unless told, it is
    /// [processor](Signal::Cpu), [memory](Signal::Memory) and the pressure on both, each with
    /// [its marks](Signal::marks). Told twice, the last marks count.
    ///
    /// ```
    /// # use tidegate::load::{Watermarks, Shedder, Signal};
    /// let shedder = Shedder::builder().watch(Signal::Cpu, Watermarks::percent(60..=80)).build();
    /// assert_eq!(shedder.readings().len(), 1);
    /// ```
    pub fn watch(mut self, signal: Signal, marks: Watermarks) -> Self {
        let watches = self.watches.get_or_insert_default();
        watches.retain(|(watched, _)| *watched != signal);
        watches.push((signal, marks));
        self
    }

    /// Watches nothing: only what is in flight counts.
    ///
    /// ```
    /// # use tidegate::load::Shedder;
    /// assert!(Shedder::builder().watch_nothing().in_flight_max(100).build().readings().is_empty());
    /// ```
    pub fn watch_nothing(mut self) -> Self {
        self.watches = Some(Vec::new());
        self
    }

    /// How much may be in flight, critical traffic included; no bound unless told.
    ///
    /// ```
    /// # use tidegate::load::{Priority, Shedder};
    /// let shedder = Shedder::builder().in_flight_max(1).build();
    /// let permit = shedder.try_enter(Priority::Critical)?;
    /// assert!(shedder.try_enter(Priority::Critical).is_err());
    /// # Ok::<(), tidegate::load::Shed>(())
    /// ```
    pub fn in_flight_max(mut self, max: u64) -> Self {
        self.in_flight_max = Some(max);
        self
    }

    /// How many hundredths of it requests of this priority fill; what is above is kept for those that matter
    /// more. Batch 50, sheddable 65, normal 80 unless told, critical always 100. No priority has more
    /// than the one above it, whatever is told.
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

    /// How often the signals are read, at the most; every 200 ms unless told.
    ///
    /// ```
    /// # use tidegate::Span;
    /// # use tidegate::load::Shedder;
    /// let shedder = Shedder::builder().every(Span::from_secs(1)).build();
    /// ```
    pub fn every(mut self, every: impl Into<Span>) -> Self {
        self.every = every.into();
        self
    }

    /// Where `proc` and `sys` are; `/` unless told. For tests, and for those who look at another container.
    ///
    /// ```
    /// # use tidegate::load::{Shedder, Unread};
    /// let shedder = Shedder::builder().root("/nowhere").build();
    /// shedder.sample();
    /// assert!(shedder.readings().iter().all(|reading| reading.value.is_err()), "and all say why");
    /// ```
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = root.into();
        self
    }

    /// A shedder by the machine's clock.
    ///
    /// ```
    /// let shedder = tidegate::load::Shedder::builder().build();
    /// ```
    pub fn build(self) -> Shedder {
        self.build_with_clock(SystemClock::new())
    }

    /// A shedder by another clock.
    ///
    /// ```
    /// # use tidegate::ManualClock;
    /// # use tidegate::load::Shedder;
    /// let shedder = Shedder::builder().build_with_clock(ManualClock::new());
    /// ```
    pub fn build_with_clock<C: Clock>(self, clock: C) -> Shedder<C> {
        let ceilings = self.ceilings();
        let watches = self.watches.unwrap_or_else(usual);
        let due = if watches.is_empty() { NEVER } else { 0 };
        let watches =
            watches.into_iter().map(|(signal, marks)| Watch::new(signal, marks)).collect();
        let desk = Desk { machine: Machine::new(self.root), watches, last: None };
        let inner = Inner {
            clock,
            ceilings,
            in_flight: AtomicU64::new(0),
            level: AtomicU64::new(0),
            numbers: Priority::ALL.map(|_| AtomicU64::new(0)),
            due: AtomicU64::new(due),
            every: self.every,
            desk: Mutex::new(desk),
        };
        Shedder { inner: Arc::new(inner) }
    }

    fn ceilings(&self) -> [u64; Priority::ALL.len()] {
        let max = self.in_flight_max.unwrap_or(u64::MAX);
        let mut share = 100;
        let mut ceilings = [max; Priority::ALL.len()];
        // From the top: none has more than the one above it.
        for (ceiling, own) in ceilings.iter_mut().zip(self.shares).rev() {
            share = own.min(share);
            let part = u128::from(max) * u128::from(share) / 100;
            // One at least, for those who have a share: also of a single place.
            *ceiling = u64::try_from(part).unwrap_or(max).max(max.min(share).min(1));
        }
        ceilings
    }
}

fn usual() -> Vec<(Signal, Watermarks)> {
    let signals = [Signal::Cpu, Signal::Memory, Signal::CpuPressure, Signal::MemoryPressure];
    signals.map(|signal| (signal, signal.marks())).to_vec()
}
