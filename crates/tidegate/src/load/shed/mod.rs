//! Load shedding: turns away what matters least while there is too much to do (A14).
//!
//! Always   A class is turned away only while everything below it is. Critical traffic is turned away
//!          only by the bound on what is in flight, never by a signal.
//! Always   A request costs a few atomic steps and a look at the clock. The files that tell the load are
//!          read at most every [`EVERY`] (or as told), by one request that finds it is time, and by nobody
//!          else meanwhile. There is no thread.
//! Always   A signal that is not to be had sheds nothing, and says so in [`Shedder::readings`].

mod builder;
mod machine;
mod permit;
mod signal;

pub use builder::ShedderBuilder;
pub use permit::ShedPermit;
pub use signal::{Reading, Signal, Unread};

use crate::clock::{Clock, SystemClock};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, lock};
use machine::Machine;
use signal::Watch;
use std::fmt;
use tidegate_core::{Level, Priority, Span, Timestamp};

/// How often the signals are read unless told: often enough for a level that moves in seconds, and a
/// fraction of a thousandth of one core.
const EVERY: Span = Span::from_millis(200);

/// Turns away what matters least while the machine, or what is in flight, is too much.
///
/// Clones are the same shedder.
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
    /// The most in flight with a request of each priority, itself included; all of it for critical ones.
    ceilings: [u64; Priority::ALL.len()],
    in_flight: AtomicU64,
    /// In millionths of a class.
    level: AtomicU64,
    /// Requests of each priority, for shedding a part of them evenly.
    numbers: [AtomicU64; Priority::ALL.len()],
    /// When the signals are to be read again, in microseconds.
    due: AtomicU64,
    every: Span,
    desk: Mutex<Desk>,
}

/// What only the one who reads the signals needs.
struct Desk {
    machine: Machine,
    watches: Vec<Watch>,
    last: Option<Timestamp>,
}

impl Shedder {
    /// A shedder by the load of the machine, or of the container it runs in: processor and memory, and the
    /// pressure on both.
    ///
    /// ```
    /// # use tidegate::load::{Priority, Shedder};
    /// let shedder = Shedder::new();
    /// assert!(shedder.try_enter(Priority::Critical).is_ok());
    /// for reading in shedder.readings() {
    ///     println!("{reading}");
    /// }
    /// ```
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A shedder that is told what to watch.
    ///
    /// ```
    /// # use tidegate::load::{Watermarks, Shedder, Signal};
    /// let shedder = Shedder::builder()
    ///     .watch(Signal::Cpu, Watermarks::percent(60..=80))
    ///     .in_flight_max(500)
    ///     .build();
    /// ```
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
    /// May a request of this priority go on? Hold the permit for as long as it does.
    ///
    /// ```
    /// # use tidegate::load::{Priority, Shedder};
    /// let shedder = Shedder::builder().in_flight_max(10).build();
    /// let normal: Vec<_> = (0..8).map(|_| shedder.try_enter(Priority::Normal).unwrap()).collect();
    /// assert!(shedder.try_enter(Priority::Normal).is_err(), "two places are for critical traffic");
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

    /// How much is shed because of the signals.
    ///
    /// ```
    /// # use tidegate::load::{Level, Shedder};
    /// assert_eq!(Shedder::new().level(), Level::default());
    /// ```
    pub fn level(&self) -> Level {
        let millionths = self.inner.level.load(Ordering::Relaxed);
        Level::from_millionths(u32::try_from(millionths).unwrap_or(u32::MAX))
    }

    /// How many permits are out.
    ///
    /// ```
    /// # use tidegate::load::{Priority, Shedder};
    /// let shedder = Shedder::new();
    /// let permit = shedder.try_enter(Priority::Normal)?;
    /// assert_eq!(shedder.in_flight(), 1);
    /// # Ok::<(), tidegate::load::Shed>(())
    /// ```
    pub fn in_flight(&self) -> u64 {
        self.inner.in_flight.load(Ordering::Relaxed)
    }

    /// Reads the signals now and moves the level. Requests do so by themselves when it is time; call this
    /// where there may be none for long, and level and readings are to be right all the same.
    ///
    /// ```
    /// # use tidegate::load::Shedder;
    /// let shedder = Shedder::new();
    /// shedder.sample();
    /// ```
    pub fn sample(&self) {
        let mut desk = lock(&self.inner.desk);
        self.sample_at(&mut desk);
    }

    /// What the signals said when they were last read, or why they could not be.
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
        lock(&self.inner.desk).watches.iter().map(Watch::reading).collect()
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
        // One of those who see that it is time does it; the others go on.
        let next = (self.inner.clock.now() + self.inner.every).as_micros();
        let claim = (Ordering::AcqRel, Ordering::Relaxed);
        if self.inner.due.compare_exchange(due, next, claim.0, claim.1).is_ok() {
            self.sample();
        }
    }

    fn sample_at(&self, desk: &mut Desk) {
        let now = self.inner.clock.now();
        let span = desk.last.map_or(Span::ZERO, |last| now.since(last));
        desk.last = Some(now);
        let Desk { machine, watches, .. } = desk;
        let pushes = watches.iter_mut().filter_map(|watch| watch.look(machine, now));
        // Whoever pushes up prevails; it goes down only if all say so, or nobody says anything.
        let push = pushes.max().unwrap_or(-1_000);
        let level = self.level().pushed(push, span);
        self.inner.level.store(u64::from(level.as_millionths()), Ordering::Relaxed);
    }
}

/// Due at no time: there is nothing to read.
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

/// A request that was turned away for lack of capacity: a 503, not a 429.
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

/// Why a request was turned away.
///
/// ```
/// assert_ne!(tidegate::load::Cause::Load, tidegate::load::Cause::InFlight);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The signals say that the machine has too much to do.
    Load,
    /// As much is in flight as may be with a request of this priority.
    InFlight,
}

impl Shed {
    /// The priority of the request.
    ///
    /// ```
    /// # use tidegate::load::{Priority, Shedder};
    /// let shed = Shedder::builder().in_flight_max(0).build().try_enter(Priority::Batch).unwrap_err();
    /// assert_eq!(shed.priority(), Priority::Batch);
    /// ```
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Why.
    ///
    /// ```
    /// # use tidegate::load::{Cause, Priority, Shedder};
    /// let shed = Shedder::builder().in_flight_max(0).build().try_enter(Priority::Batch).unwrap_err();
    /// assert_eq!(shed.cause(), Cause::InFlight);
    /// ```
    pub fn cause(&self) -> Cause {
        self.cause
    }
}

impl fmt::Display for Shed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.cause {
            Cause::Load => "the machine has too much to do",
            Cause::InFlight => "as much is in flight as may be",
        };
        write!(f, "{} traffic is shed: {why}; try again later", self.priority)
    }
}

impl std::error::Error for Shed {}
