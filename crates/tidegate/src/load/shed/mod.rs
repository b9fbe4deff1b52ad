//! Load shedding: rejects the least important requests while the machine is overloaded (A14).
//!
//! Always   A class is shed only if all lower classes are shed completely. Critical traffic is rejected only by the bound on
//!          requests in flight, never by a signal.
//! Always   A request takes a few atomic operations and a reading of the clock. The files of the signals are read at most
//!          every [`EVERY`] (or the configured interval), by the one request that finds them due. There is no thread.
//! Always   A signal that cannot be read sheds nothing, and [`Shedder::readings`] says why.

mod builder;
mod machine;
mod permit;
mod signal;
mod watched_signal;

pub use builder::ShedderBuilder;
pub use permit::ShedPermit;
pub use signal::{Reading, Signal, Unread};

use crate::clock::{Clock, SystemClock};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, lock};
use machine::Machine;
use std::fmt;
use tidegate_core::{Level, Priority, Span, Timestamp};
use watched_signal::WatchedSignal;

/// The default interval between readings: short enough for a level that moves in seconds, and less than a thousandth of one
/// core.
const EVERY: Span = Span::from_millis(200);

/// Rejects the least important requests while the machine is overloaded, or too many requests are in flight.
///
/// Clones share their state.
///
/// ```
/// use tidegate::load::{Priority, Shedder};
///
/// let shedder = Shedder::builder().in_flight_max(100).build();
/// match shedder.try_enter(Priority::Batch) {
///     Ok(permit) => drop(permit), // hold it for as long as the work takes
///     Err(shed) => println!("503: {shed}"),
/// }
/// ```
pub struct Shedder<C: Clock = SystemClock> {
    inner: Arc<Inner<C>>,
}

struct Inner<C> {
    clock: C,
    /// For each priority, the number of requests in flight up to which a request is admitted, itself included.
    ceilings: [u64; Priority::ALL.len()],
    in_flight: AtomicU64,
    /// The level, in millionths of a class.
    level: AtomicU64,
    /// The number of requests of each priority, to shed a share of them evenly.
    numbers: [AtomicU64; Priority::ALL.len()],
    /// The time of the next reading, in microseconds.
    due: AtomicU64,
    every: Span,
    sampler: Mutex<Sampler>,
}

/// The state of the request that reads the signals.
struct Sampler {
    machine: Machine,
    watches: Vec<WatchedSignal>,
    last: Option<Timestamp>,
}

impl Shedder {
    /// Creates a shedder that watches processor and memory of the machine or its container, and the pressure on both.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts a shedder with other signals or bounds.
    pub fn builder() -> ShedderBuilder {
        ShedderBuilder::new()
    }
}

impl Default for Shedder {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> Shedder<C> {
    /// Admits a request of this priority, or rejects it. Keep the permit while the request runs.
    ///
    /// # Errors
    /// The request is shed.
    ///
    /// ```
    /// # use tidegate::load::{Priority, Shedder};
    /// let shedder = Shedder::builder().in_flight_max(10).build();
    /// let normal: Vec<_> = (0..8).map(|_| shedder.try_enter(Priority::Normal).unwrap()).collect();
    /// assert!(shedder.try_enter(Priority::Normal).is_err(), "two of ten permits are for critical traffic");
    /// assert!(shedder.try_enter(Priority::Critical).is_ok());
    /// ```
    pub fn try_enter(&self, priority: Priority) -> Result<ShedPermit<C>, Shed> {
        self.sample_if_due();
        let inner = &*self.inner;
        let level = self.level();
        if level.share(priority) > 0 {
            let number = inner.numbers[priority as usize].fetch_add(1, Ordering::Relaxed);
            if level.sheds(priority, number) {
                return Err(Shed { priority, cause: Cause::Load });
            }
        }
        let ceiling = inner.ceilings[priority as usize];
        let enter = |in_flight: u64| (in_flight < ceiling).then_some(in_flight + 1);
        match inner.in_flight.fetch_update(Ordering::AcqRel, Ordering::Relaxed, enter) {
            Ok(_) => Ok(ShedPermit::new(self.clone(), priority)),
            Err(_) => Err(Shed { priority, cause: Cause::InFlight }),
        }
    }

    /// Returns the current level.
    pub fn level(&self) -> Level {
        let millionths = self.inner.level.load(Ordering::Relaxed);
        Level::from_millionths(u32::try_from(millionths).unwrap_or(u32::MAX))
    }

    /// Returns how many requests are in flight.
    pub fn in_flight(&self) -> u64 {
        self.inner.in_flight.load(Ordering::Relaxed)
    }

    /// Reads the signals now, and adjusts the level. Requests do so when a reading is due; call this if there may be no requests
    /// for a long time.
    pub fn sample(&self) {
        let mut sampler = lock(&self.inner.sampler);
        self.sample_at(&mut sampler);
    }

    /// Returns the last readings of the signals, or why they could not be read.
    ///
    /// ```
    /// # use tidegate::load::Shedder;
    /// let shedder = Shedder::new();
    /// shedder.sample();
    /// for reading in shedder.readings() {
    ///     println!("{reading}"); // such as `cpu pressure: 3.1 % (marks 30 % to 50 %)`
    /// }
    /// ```
    pub fn readings(&self) -> Vec<Reading> {
        lock(&self.inner.sampler).watches.iter().map(WatchedSignal::reading).collect()
    }

    fn sample_if_due(&self) {
        let due = self.inner.due.load(Ordering::Relaxed);
        if due == NEVER || self.inner.clock.now().as_micros() < due {
            return;
        }
        self.sample_late(due);
    }

    #[cold]
    fn sample_late(&self, due: u64) {
        // Of the requests that find a reading due, one does it.
        let next = (self.inner.clock.now() + self.inner.every).as_micros();
        let claim = (Ordering::AcqRel, Ordering::Relaxed);
        if self.inner.due.compare_exchange(due, next, claim.0, claim.1).is_ok() {
            self.sample();
        }
    }

    fn sample_at(&self, sampler: &mut Sampler) {
        let now = self.inner.clock.now();
        let span = sampler.last.map_or(Span::ZERO, |last| now.since(last));
        sampler.last = Some(now);
        let Sampler { machine, watches, .. } = sampler;
        let pushes = watches.iter_mut().filter_map(|watch| watch.read(machine, now));
        // The level rises if one signal raises it. It falls only if all signals lower it, or none can be read.
        let push = pushes.max().unwrap_or(-1_000);
        let level = self.level().pushed(push, span);
        self.inner.level.store(u64::from(level.as_millionths()), Ordering::Relaxed);
    }
}

/// No reading is ever due: there are no signals.
const NEVER: u64 = u64::MAX;

impl<C: Clock> Clone for Shedder<C> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<C: Clock> fmt::Debug for Shedder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shedder")
            .field("level", &self.level())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

/// A rejection for lack of capacity: a 503, not a 429.
///
/// ```
/// use tidegate::load::{Cause, Priority, Shedder};
///
/// let shedder = Shedder::builder().in_flight_max(0).build();
/// let shed = shedder.try_enter(Priority::Normal).unwrap_err();
/// assert_eq!((shed.priority(), shed.cause()), (Priority::Normal, Cause::InFlight));
/// assert_eq!(shed.to_string(), "normal traffic is shed: as much is in flight as may be; try again later");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    priority: Priority,
    cause: Cause,
}

/// The cause of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The signals say that the machine is overloaded.
    Load,
    /// As many requests are in flight as this priority allows.
    InFlight,
}

impl Shed {
    /// Returns the priority of the request.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Returns the cause.
    pub fn cause(&self) -> Cause {
        self.cause
    }
}

impl fmt::Display for Shed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.cause {
            Cause::Load => "the machine is overloaded",
            Cause::InFlight => "as much is in flight as may be",
        };
        write!(f, "{} traffic is shed: {why}; try again later", self.priority)
    }
}

impl std::error::Error for Shed {}
