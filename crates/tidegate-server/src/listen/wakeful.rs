//! A busy worker looks once more before it goes to sleep.
//!
//! To go to sleep and to be woken takes a worker, and whoever wakes it, longer than a decision: on a virtual machine the
//! sender has to ask the host to wake the other core. A client that asks one thing after the other waits for that each time.
//!
//! Always   Only who is asked again soon stays awake, and only for as long as it is told. A read that came soon after the one
//!          before earns a credit, and a look in vain costs [`IN_VAIN`]: so there is at most one in vain for so many reads, and a
//!          worker that is asked now and then sleeps at once, but for the [`CREDIT_MAX`] that it may have saved before.
//! Always   Who was away while it looked shares its core with somebody, and lets it go, or pays for a look in vain.

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

/// Whether it has been asked again soon, of late.
#[derive(Debug)]
struct Lookout {
    /// What had come when it was last asked, and since when nothing has come.
    reads: u32,
    quiet_since: Timestamp,
    /// When it was last asked.
    asked_at: Timestamp,
    /// How many came soon, less what looks in vain have cost.
    credit: u32,
    /// Whether it looks, and has not paid for it.
    is_looking: bool,
}

/// What a look in vain costs.
const IN_VAIN: u32 = 8;
/// The most that can be saved, for as long as it takes: eight looks in vain, and it sleeps.
const CREDIT_MAX: u32 = 8 * IN_VAIN;
/// Soon is within so many times as long as it would look: who was asleep is woken late, and has answered before it is asked.
const SOON: u64 = 2;
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
        Self { reads: 0, quiet_since: now, asked_at: now, credit: 0, is_looking: false }
    }

    /// Whether to look once more, if so much has come until now.
    fn stays(&mut self, now: Timestamp, reads: u32, stay: Span) -> bool {
        let since_asked = now.since(self.asked_at);
        self.asked_at = now;
        if reads != self.reads {
            self.has_come(now, reads.wrapping_sub(self.reads), stay);
        } else if self.is_looking && since_asked > AWAY {
            (self.credit, self.is_looking) = (0, false);
        }
        if now.since(self.quiet_since) >= stay {
            self.pay_for_look();
            return false;
        }
        self.is_looking = self.credit >= IN_VAIN;
        self.is_looking
    }

    /// Where much comes at once, answering it takes time too: what counts is the time for each.
    fn has_come(&mut self, now: Timestamp, count: u32, stay: Span) {
        let soon_us = stay.as_micros() * SOON * u64::from(count);
        if now.since(self.quiet_since).as_micros() <= soon_us {
            self.credit = self.credit.saturating_add(count).min(CREDIT_MAX);
            self.is_looking = false;
        } else {
            // It was away, or so slow that it might as well have slept.
            self.pay_for_look();
        }
        self.reads = self.reads.wrapping_add(count);
        self.quiet_since = now;
    }

    /// Ends a look in vain, if it looks.
    fn pay_for_look(&mut self) {
        if std::mem::take(&mut self.is_looking) {
            debug_assert!(self.credit >= IN_VAIN, "nobody looks for nothing");
            self.credit = self.credit.saturating_sub(IN_VAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Wake};
    use std::time::Duration;

    const STAY: Span = Span::from_micros(50);

    fn at(us: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000 + us)
    }

    /// One that has been asked every `gap_us` for `us`, and how often it looked at nothing, once a microsecond.
    fn asked(gap_us: u64, us: u64) -> (Lookout, u32, u64) {
        let (mut lookout, mut reads, mut looks) = (Lookout::new(at(0)), 0, 0);
        for us in 0..=us {
            reads += u32::from(us % gap_us == 0);
            looks += u64::from(lookout.stays(at(us), reads, STAY));
        }
        (lookout, reads, looks)
    }

    #[test]
    fn who_is_asked_again_soon_stays_for_as_long_as_it_is_told() {
        let (mut lookout, reads, _) = asked(20, 5_000);
        for us in 1..50 {
            assert!(lookout.stays(at(5_000 + us), reads, STAY), "{us}");
        }
        assert!(!lookout.stays(at(5_050), reads, STAY));
        assert!(!lookout.stays(at(5_051), reads, STAY));
        assert!(lookout.stays(at(5_080), reads + 1, STAY), "one look in vain is not the end");
    }

    #[test]
    fn it_takes_some_that_came_soon_to_begin() {
        let mut lookout = Lookout::new(at(0));
        for reads in 1..IN_VAIN {
            assert!(!lookout.stays(at(u64::from(reads) * 60), reads, STAY), "{reads}");
        }
        assert!(lookout.stays(at(u64::from(IN_VAIN) * 60), IN_VAIN, STAY));
    }

    #[test]
    fn looks_in_vain_end_it() {
        let (mut lookout, mut reads, _) = asked(20, 5_000);
        assert!(!lookout.stays(at(5_050), reads, STAY));
        let mut looked = 0;
        for round in 1..100 {
            reads += 1;
            let came = 5_000 + round * 1_000;
            looked += u32::from(lookout.stays(at(came), reads, STAY));
            assert!(!lookout.stays(at(came + 50), reads, STAY));
        }
        assert_eq!(looked, CREDIT_MAX / IN_VAIN - 1, "one was paid for already");
    }

    #[test]
    fn who_is_asked_now_and_then_sleeps_at_once() {
        for gap_us in [101, 200, 1_000, 100_000] {
            assert_eq!(asked(gap_us, 1_000_000).2, 0, "{gap_us}");
        }
    }

    #[test]
    fn looks_in_vain_take_at_most_an_eighth_of_the_time_for_each_request() {
        for gap_us in 51..=100 {
            let (_, reads, looks) = asked(gap_us, 1_000_000);
            let most = u64::from(reads) * STAY.as_micros() / u64::from(IN_VAIN);
            assert!(looks <= most, "{gap_us}: {looks} of {most}");
        }
    }

    #[test]
    fn of_many_at_once_each_has_its_share_of_the_time() {
        let mut lookout = Lookout::new(at(0));
        assert!(lookout.stays(at(1_000), 50, STAY), "20 us for each");
        let mut lookout = Lookout::new(at(0));
        assert!(!lookout.stays(at(10_000), 50, STAY), "200 us for each");
    }

    #[test]
    fn a_timer_that_wakes_it_is_no_request() {
        let (mut lookout, reads, _) = asked(20, 5_000);
        assert!(
            !lookout.stays(at(5_050), reads, STAY),
            "it sleeps, and could look seven times more"
        );
        assert!(!lookout.stays(at(60_000), reads, STAY));
        assert!(!lookout.stays(at(60_001), reads, STAY));
        assert!(lookout.stays(at(60_060), reads + 1, STAY), "a request is one");
    }

    /// What comes, so long after the last, and whether it looked for it or was away.
    #[derive(Clone, Debug)]
    struct Coming {
        gap_us: u64,
        reads: u32,
        is_away: bool,
    }

    proptest! {
        #[test]
        fn there_is_at_most_one_look_in_vain_for_eight_reads(
            comings in proptest::collection::vec(
                (0_u64..400, 1_u32..6, any::<bool>())
                    .prop_map(|(gap_us, reads, is_away)| Coming { gap_us, reads, is_away }),
                1..300,
            ),
        ) {
            let (mut lookout, mut reads, mut in_vain) = (Lookout::new(at(0)), 0, 0);
            let mut now_us = 0;
            let mut is_looking = false;
            for coming in comings {
                let came_us = now_us + coming.gap_us;
                while is_looking && !coming.is_away && now_us + 1 < came_us {
                    now_us += 1;
                    is_looking = lookout.stays(at(now_us), reads, STAY);
                    in_vain += u32::from(!is_looking);
                }
                now_us = came_us;
                reads += coming.reads;
                let is_soon = coming.gap_us <= STAY.as_micros() * SOON * u64::from(coming.reads);
                in_vain += u32::from(is_looking && !is_soon);
                is_looking = lookout.stays(at(now_us), reads, STAY);
                prop_assert!(in_vain * IN_VAIN <= reads, "{in_vain} in vain for {reads}");
            }
        }
    }

    #[test]
    fn who_was_away_lets_its_core_go() {
        let (mut lookout, reads, _) = asked(20, 5_100);
        let long = Span::from_secs(1);
        assert!(lookout.stays(at(5_300), reads, long), "200 µs are none");
        assert!(!lookout.stays(at(5_501), reads, long));
        assert!(!lookout.stays(at(5_502), reads, long), "until it has earned it again");
    }

    #[test]
    fn who_was_away_while_somebody_came_pays_for_it() {
        let (mut lookout, mut reads, _) = asked(20, 5_100);
        let mut looked = 0;
        for came in 1..20 {
            reads += 1;
            looked += u32::from(lookout.stays(at(5_100 + came * 5_000), reads, STAY));
        }
        assert_eq!(looked, CREDIT_MAX / IN_VAIN - 1, "and the first was looked for already");
    }

    #[test]
    fn a_count_that_goes_round_is_no_matter() {
        let mut lookout = Lookout { reads: u32::MAX - 100, ..Lookout::new(at(0)) };
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
        *wakeful.lookout.lock().unwrap() = Lookout { credit: CREDIT_MAX, ..Lookout::new(soon) };
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
