//! A clock that a thread stores in memory at an interval.
//!
//! Always   It lags behind by at most the interval, plus the time for which its thread is not scheduled, so a limit admits
//!          late and never early. It never goes back.

use super::{Clock, Sleep, SystemClock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tidegate_core::Timestamp;

/// A clock that is read by a load from memory instead of from the processor's counter.
///
/// A thread updates it at an interval, and ends when the last clone is dropped. A limit with this clock admits as *much*
/// as with any other, but up to one interval later.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Gate;
/// use tidegate::clock::CachedClock;
///
/// let clock = CachedClock::every(Duration::from_millis(1));
/// let gate = Gate::with_clock("1000000/s".parse()?, clock);
/// assert!(gate.check().is_allow());
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct CachedClock {
    shared: Arc<CachedTime>,
}

#[derive(Debug)]
struct CachedTime {
    now_us: AtomicU64,
    /// Closed when the last clock is dropped, which ends the thread.
    _alive: Sender<()>,
}

impl CachedClock {
    /// Creates a clock that is updated at this interval. An update every millisecond takes a thousandth of a core.
    ///
    /// # Panics
    /// If the system cannot start a thread.
    pub fn every(interval: Duration) -> Self {
        let system = SystemClock::new();
        let (alive, dropped) = channel();
        let now_us = AtomicU64::new(system.now().as_micros());
        let shared = Arc::new(CachedTime { now_us, _alive: alive });
        let watched = Arc::downgrade(&shared);
        std::thread::Builder::new()
            .name("tidegate-clock".into())
            .spawn(move || {
                while dropped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                    let Some(shared) = watched.upgrade() else { break };
                    shared.now_us.store(system.now().as_micros(), Ordering::Relaxed);
                }
            })
            .expect("the system can start one thread");
        Self { shared }
    }
}

impl Clock for CachedClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.shared.now_us.load(Ordering::Relaxed))
    }

    fn calendar_now(&self) -> Timestamp {
        SystemClock::new().calendar_now()
    }

    /// Sleeps by the machine's clock, and then until this clock has caught up.
    fn sleep_until(&self, at: Timestamp) -> Sleep {
        let clock = self.clone();
        Sleep::new(async move {
            while clock.now() < at {
                let left = at.since(clock.now());
                Sleep::on_timer(left).await;
            }
        })
    }
}
