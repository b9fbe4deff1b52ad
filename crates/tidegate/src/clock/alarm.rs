//! One thread that wakes tasks when their time has come, so that waiting needs no async runtime.
//!
//! Always   The thread starts with the first wait and sleeps until the next alarm. A dropped alarm
//!          is taken out at once: cancelled waits cost no memory until they would have been due.
//!          It never runs user code under its lock.

use crate::sync::wake::wake_each;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tidegate_core::Span;

/// A wait so long that nobody will see its end; the thread looks again after it.
const NAP_MAX: Duration = Duration::from_secs(3_600);

/// Ready after a span of the machine's monotonic time.
pub(super) struct Alarm {
    /// `None` is later than the machine can say.
    due: Option<Instant>,
    /// Where it stands in the list, once it has been polled.
    number: Option<u64>,
}

impl Alarm {
    pub(super) fn after(span: Span) -> Self {
        Self { due: now().checked_add(span.as_duration()), number: None }
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.due else { return Poll::Pending };
        if now() >= due {
            return Poll::Ready(());
        }
        let clerk = clerk();
        let mut book = clerk.admit();
        let number = *self.number.get_or_insert_with(|| {
            book.last_number += 1;
            book.last_number
        });
        let is_first =
            book.alarms.first_key_value().is_none_or(|(first, _)| (due, number) < *first);
        let replaced = book.alarms.insert((due, number), context.waker().clone());
        drop(book);
        drop(replaced);
        if is_first {
            clerk.sooner.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let (Some(due), Some(number)) = (self.due, self.number) {
            let waker = clerk().admit().alarms.remove(&(due, number));
            // Dropped after the lock is gone: a waker's drop is not our code.
            drop(waker);
        }
    }
}

struct Clerk {
    book: Mutex<Book>,
    sooner: Condvar,
}

#[derive(Default)]
struct Book {
    alarms: BTreeMap<(Instant, u64), Waker>,
    last_number: u64,
}

impl Clerk {
    fn admit(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let mut book = self.admit();
            let time = now();
            let later = book.alarms.split_off(&(time, u64::MAX));
            let due = std::mem::replace(&mut book.alarms, later);
            if due.is_empty() {
                let nap =
                    book.alarms.first_key_value().map_or(NAP_MAX, |(first, _)| first.0 - time);
                drop(self.sooner.wait_timeout(book, nap));
                continue;
            }
            drop(book);
            wake_each(due.into_values());
        }
    }
}

/// The one clerk of this process, started when the first alarm is set.
fn clerk() -> &'static Clerk {
    static CLERK: OnceLock<&'static Clerk> = OnceLock::new();
    CLERK.get_or_init(|| {
        let clerk: &'static Clerk =
            Box::leak(Box::new(Clerk { book: Mutex::default(), sooner: Condvar::new() }));
        std::thread::Builder::new()
            .name("tidegate-alarm".into())
            .spawn(|| clerk.run())
            .expect("the system can start one thread");
        clerk
    })
}

#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn now() -> Instant {
    Instant::now()
}
