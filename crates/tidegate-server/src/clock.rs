//! The time as the server sees it: the machine's, or one that tests set.

use tidegate::clock::Sleep;
use tidegate::{Clock, ManualClock, SystemClock, Timestamp};

/// The server's clock.
#[derive(Clone, Debug)]
pub enum ServerClock {
    /// The machine's.
    System(SystemClock),
    /// One that stands still until somebody moves it: for tests over real sockets.
    Manual(ManualClock),
}

impl ServerClock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self::System(SystemClock::new())
    }
}

impl Clock for ServerClock {
    #[inline]
    fn now(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.now(),
            Self::Manual(clock) => clock.now(),
        }
    }

    #[inline]
    fn calendar_now(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.calendar_now(),
            Self::Manual(clock) => clock.calendar_now(),
        }
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        match self {
            Self::System(clock) => clock.sleep_until(at),
            Self::Manual(clock) => clock.sleep_until(at),
        }
    }
}
