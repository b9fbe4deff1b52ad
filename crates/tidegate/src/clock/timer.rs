//! One thread that wakes tasks when their time has come, so that waiting needs no async runtime.
//!
//! Always   The thread starts with the first wait and sleeps until the next timer is due. A dropped timer
//!          leaves the queue immediately, so a cancelled wait takes no memory until it would have been due.
//!          Wakers, which are foreign code, are called and dropped without the lock.

use crate::sync::lock_std;
use crate::sync::wake::wake_each;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Condvar, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tidegate_core::Span;

/// The thread looks at the queue at least this often.
const SLEEP_MAX: Duration = Duration::from_secs(3_600);

/// A future that is ready after a span of the machine's monotonic time.
pub(super) struct Timer {
    /// `None` if the machine's clock cannot represent the time: the timer never fires.
    due: Option<Instant>,
    /// Its number in the queue, once it has been polled.
    number: Option<u64>,
}

impl Timer {
    pub(super) fn after(span: Span) -> Self {
        Self { due: now().checked_add(span.as_duration()), number: None }
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.due else { return Poll::Pending };
        if now() >= due {
            return Poll::Ready(());
        }
        let thread = TimerThread::started();
        let mut queue = lock_std(&thread.queue);
        let number = *self.number.get_or_insert_with(|| {
            queue.last_number += 1;
            queue.last_number
        });
        let is_first =
            queue.timers.first_key_value().is_none_or(|(first, _)| (due, number) < *first);
        let replaced = queue.timers.insert((due, number), context.waker().clone());
        drop(queue);
        drop(replaced);
        if is_first {
            thread.earlier.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let (Some(due), Some(number)) = (self.due, self.number) {
            let waker = lock_std(&THREAD.queue).timers.remove(&(due, number));
            // Dropped after the lock has been released.
            drop(waker);
        }
    }
}

struct TimerThread {
    queue: Mutex<TimerQueue>,
    /// Notified when a timer is due before all others.
    earlier: Condvar,
}

struct TimerQueue {
    timers: BTreeMap<(Instant, u64), Waker>,
    last_number: u64,
}

static THREAD: TimerThread = TimerThread {
    queue: Mutex::new(TimerQueue { timers: BTreeMap::new(), last_number: 0 }),
    earlier: Condvar::new(),
};

impl TimerThread {
    /// Returns the process's timer thread, and starts it at the first call.
    fn started() -> &'static Self {
        static STARTED: OnceLock<()> = OnceLock::new();
        STARTED.get_or_init(|| {
            std::thread::Builder::new()
                .name("tidegate-timer".into())
                .spawn(|| THREAD.run())
                .expect("the system can start one thread");
        });
        &THREAD
    }

    fn run(&self) {
        loop {
            let mut queue = lock_std(&self.queue);
            let time = now();
            let later = queue.timers.split_off(&(time, u64::MAX));
            let due = std::mem::replace(&mut queue.timers, later);
            if due.is_empty() {
                let first = queue.timers.first_key_value();
                let wait = first.map_or(SLEEP_MAX, |(first, _)| first.0 - time);
                drop(self.earlier.wait_timeout(queue, wait));
                continue;
            }
            drop(queue);
            wake_each(due.into_values());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn now() -> Instant {
    Instant::now()
}
