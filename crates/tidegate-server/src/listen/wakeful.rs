//! A busy worker looks once more before it goes to sleep.
//!
//! To go to sleep and to be woken takes a worker, and whoever wakes it, longer than a decision: on a virtual machine the
//! sender has to ask the host to wake the other core. Where requests come one by one, that is a tenth of them.
//!
//! Always   Only who has been asked often a moment ago stays awake, and only for as long as it is told: a worker that
//!          is asked now and then sleeps at once.
//! Always   Who was away while it looked shares its core with somebody, and lets it go.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::task::{Poll, Waker};
use tidegate::{Clock as _, Span, SystemClock, Timestamp};

/// Keeps one worker awake; the worker's runtime asks it before it sleeps.
#[derive(Debug)]
pub(super) struct Wakeful {
    clock: SystemClock,
    stay: Span,
    /// How often something has come, modulo 2^32.
    reads: AtomicU32,
    /// Of a task that has nothing to do: a runtime with a task to run does not sleep, and looks at its sockets.
    waker: OnceLock<Waker>,
    lookout: Mutex<Lookout>,
}

/// How busy it has been.
#[derive(Debug)]
struct Lookout {
    /// What had come when it was last asked, and since when nothing has come.
    reads: u32,
    quiet_since: Timestamp,
    /// When it was last asked.
    asked_at: Timestamp,
    /// The stretch of time that is counted now.
    began_at: Timestamp,
    began_with: u32,
    /// Whether enough came in the stretch before.
    is_busy: bool,
}

/// How long a stretch is.
const STRETCH: Span = Span::from_millis(1);
/// So much must come in it: one every 50 µs, which is about as long as a sleep is worth.
const BUSY: u32 = 20;
/// One look takes a microsecond: who comes back after so long has been away.
const AWAY: Span = Span::from_micros(200);

impl Wakeful {
    /// Stays awake for so long after something has come.
    pub(super) fn new(stay: Span) -> Self {
        let clock = SystemClock::new();
        let lookout = Mutex::new(Lookout::new(clock.now()));
        Self { clock, stay, reads: AtomicU32::new(0), waker: OnceLock::new(), lookout }
    }

    /// Something has come.
    #[inline]
    pub(super) fn has_read(&self) {
        // Only the worker's own thread counts, so there is nobody to race with.
        let reads = self.reads.load(Ordering::Relaxed);
        self.reads.store(reads.wrapping_add(1), Ordering::Relaxed);
    }

    /// There is nothing to do: sees to it that there is, if it is too early to sleep.
    pub(super) fn before_sleep(&self) {
        if self.stay == Span::ZERO {
            return;
        }
        let mut lookout = self.lookout.lock().expect("nobody panics with it");
        let reads = self.reads.load(Ordering::Relaxed);
        if lookout.stays(self.clock.now(), reads, self.stay)
            && let Some(waker) = self.waker.get()
        {
            waker.wake_by_ref();
        }
    }

    /// The task that has nothing to do. It never ends.
    pub(super) async fn stand_by(&self) {
        std::future::poll_fn::<(), _>(|context| {
            self.waker.get_or_init(|| context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Lookout {
    fn new(now: Timestamp) -> Self {
        let (quiet_since, asked_at, began_at) = (now, now, now);
        Self { reads: 0, quiet_since, asked_at, began_at, began_with: 0, is_busy: false }
    }

    /// Whether to look once more, if so much has come until now.
    fn stays(&mut self, now: Timestamp, reads: u32, stay: Span) -> bool {
        if reads != self.reads {
            (self.reads, self.quiet_since) = (reads, now);
        } else if now.since(self.asked_at) > AWAY {
            self.is_busy = false;
        }
        if now.since(self.began_at) >= STRETCH {
            let came = reads.wrapping_sub(self.began_with);
            // A sleep makes a stretch longer, and what has come in it less dense.
            let stretches = now.since(self.began_at).as_micros() / STRETCH.as_micros();
            self.is_busy = u64::from(came) >= u64::from(BUSY) * stretches;
            (self.began_at, self.began_with) = (now, reads);
        }
        self.asked_at = now;
        self.is_busy && now.since(self.quiet_since) < stay
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Wake};
    use std::time::Duration;

    const STAY: Span = Span::from_micros(50);

    fn at(us: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000 + us)
    }

    /// One that has been asked every `gap_us` for `us`.
    fn asked(gap_us: u64, us: u64) -> (Lookout, u32) {
        let (mut lookout, mut reads) = (Lookout::new(at(0)), 0);
        for us in (0..=us).step_by(usize::try_from(gap_us).unwrap()) {
            reads += 1;
            lookout.stays(at(us), reads, STAY);
        }
        (lookout, reads)
    }

    #[test]
    fn who_is_busy_stays_for_as_long_as_it_is_told() {
        let (mut lookout, reads) = asked(20, 5_000);
        for us in 0..50 {
            assert!(lookout.stays(at(5_000 + us), reads, STAY), "{us}");
        }
        assert!(!lookout.stays(at(5_050), reads, STAY));
        assert!(!lookout.stays(at(5_051), reads, STAY));
        assert!(lookout.stays(at(5_080), reads + 1, STAY), "it is busy still");
    }

    #[test]
    fn who_is_asked_now_and_then_sleeps_at_once() {
        for gap_us in [60, 100, 1_000, 100_000] {
            let (mut lookout, reads) = asked(gap_us, 1_000_000);
            let last = 1_000_000 / gap_us * gap_us;
            assert!(!lookout.stays(at(last + 1), reads, STAY), "{gap_us}");
        }
    }

    #[test]
    fn a_pause_ends_it() {
        let (mut lookout, reads) = asked(20, 5_000);
        assert!(!lookout.stays(at(60_000), reads + 1, STAY), "one in 55 ms is not often");
    }

    #[test]
    fn who_was_away_lets_its_core_go() {
        let (mut lookout, reads) = asked(20, 5_100);
        let long = Span::from_secs(1);
        assert!(lookout.stays(at(5_300), reads, long), "200 µs are none");
        assert!(!lookout.stays(at(5_501), reads, long));
        assert!(!lookout.stays(at(5_502), reads, long), "until the stretch is over");
    }

    #[test]
    fn a_count_that_goes_round_is_no_matter() {
        let mut lookout = Lookout::new(at(0));
        let mut reads = u32::MAX - 100;
        for us in (0..=5_000).step_by(20) {
            reads = reads.wrapping_add(1);
            lookout.stays(at(us), reads, STAY);
        }
        assert!(lookout.stays(at(5_001), reads, STAY));
    }

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_stays_awake_has_a_task_to_run_and_who_sleeps_has_none() {
        let (wakeful, woken) = (Wakeful::new(Span::from_secs(60)), Arc::new(Woken::default()));
        let waker = Waker::from(Arc::clone(&woken));
        let mut standing_by = pin!(wakeful.stand_by());
        assert!(standing_by.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        wakeful.before_sleep();
        assert_eq!(woken.0.load(Ordering::Relaxed), 0, "nothing has come");
        let soon = wakeful.clock.now() + Span::from_secs(30);
        *wakeful.lookout.lock().unwrap() = Lookout { is_busy: true, ..Lookout::new(soon) };
        wakeful.before_sleep();
        wakeful.before_sleep();
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_workers_runtime_asks_before_it_sleeps_and_keeps_its_time() {
        let wakeful = Arc::new(Wakeful::new(Span::from_millis(1)));
        let runtime = crate::listen::serve::runtime(&wakeful).unwrap();
        let asked_at = || wakeful.lookout.lock().unwrap().asked_at;
        let before = asked_at();
        let kept = Arc::clone(&wakeful);
        runtime.spawn(async move { kept.stand_by().await });
        let pause = Duration::from_millis(2);
        runtime
            .block_on(async { tokio::time::timeout(pause, std::future::pending::<()>()).await })
            .expect_err("its time is over");
        assert!(asked_at() > before);
        drop(runtime);
        assert_eq!(Arc::strong_count(&wakeful), 1, "nobody holds on to it");
    }

    #[tokio::test]
    async fn told_to_stay_for_no_time_it_never_looks_again() {
        let wakeful = Wakeful::new(Span::ZERO);
        wakeful.has_read();
        wakeful.before_sleep();
        assert_eq!(wakeful.lookout.lock().unwrap().reads, 0);
    }
}
