//! Small numbers for threads, so that each can have counters of its own.
//!
//! Always   Two threads that run at the same time have different numbers. Writes of a thread before it releases its number
//!          happen before those of the next thread with that number.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The maximum number of threads with a number at a time. Shuttle runs its threads on one, so they have none.
pub(crate) const THREAD_NUMBERS: usize = if cfg!(tidegate_shuttle) { 0 } else { 64 };

/// Returns the thread's number, below [`THREAD_NUMBERS`]; or a greater one if too many threads have one already.
// Not inlined: in another crate, access to a thread-local takes two calls.
#[inline(never)]
pub(crate) fn thread_number() -> usize {
    NUMBER.with(|number| match number.get() {
        UNASSIGNED => assign(),
        known => known,
    })
}

const UNASSIGNED: usize = usize::MAX;
const NONE: usize = usize::MAX - 1;

/// A bit for each number that a thread has.
static ASSIGNED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(UNASSIGNED) };
    static HOLDER: Holder = const { Holder };
}

#[cold]
fn assign() -> usize {
    let lowest = |assigned: u64| assigned.trailing_ones() as usize;
    let add =
        |assigned| (lowest(assigned) < THREAD_NUMBERS).then(|| assigned | 1 << lowest(assigned));
    let assign = |_: &Holder| ASSIGNED.fetch_update(Ordering::Acquire, Ordering::Relaxed, add);
    let number = match HOLDER.try_with(assign) {
        Ok(Ok(before)) => lowest(before),
        // All are assigned; or this thread is ending, and could not release one.
        Ok(Err(_)) | Err(_) => NONE,
    };
    NUMBER.set(number);
    number
}

/// Releases the thread's number when it ends.
struct Holder;

impl Drop for Holder {
    fn drop(&mut self) {
        let number = NUMBER.replace(NONE);
        if number < THREAD_NUMBERS {
            ASSIGNED.fetch_and(!(1 << number), Ordering::Release);
        }
    }
}

#[cfg(all(test, not(tidegate_shuttle)))]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::thread;

    /// Returns the numbers of `threads` threads that run at the same time.
    fn numbers(threads: usize) -> Vec<usize> {
        let barrier = Barrier::new(threads);
        let number = || {
            let number = thread_number();
            barrier.wait();
            assert_eq!(thread_number(), number);
            number
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(number)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
        })
    }

    #[test]
    fn threads_that_live_at_once_have_different_numbers_or_none() {
        // More than there are numbers, and again, because they are released.
        for _ in 0..3 {
            let numbers = numbers(THREAD_NUMBERS + 8);
            let assigned: Vec<_> =
                numbers.iter().filter(|number| **number < THREAD_NUMBERS).collect();
            assert_eq!(assigned.iter().collect::<HashSet<_>>().len(), assigned.len());
            // Other tests run at the same time, and have some.
            assert!(assigned.len() > THREAD_NUMBERS / 4, "only {}", assigned.len());
        }
    }
}
