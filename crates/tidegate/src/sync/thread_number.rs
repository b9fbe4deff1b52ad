//! Small numbers for threads, so that each can have counters of its own.
//!
//! Always   No two threads that live at the same time have the same number. What a thread wrote before
//!          it gave its number back is seen by the next one that has it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many threads at a time have a number. Shuttle's threads are one thread in truth, so they have none.
pub(crate) const THREAD_NUMBERS: usize = if cfg!(tidegate_shuttle) { 0 } else { 64 };

/// A number below [`THREAD_NUMBERS`] that no other thread has; some greater one if too many threads
/// have one already.
// Not inlined: from another crate, what belongs to a thread is reached by two calls.
#[inline(never)]
pub(crate) fn thread_number() -> usize {
    NUMBER.with(|number| match number.get() {
        UNASKED => give_number(),
        known => known,
    })
}

const UNASKED: usize = usize::MAX;
const NONE: usize = usize::MAX - 1;

/// A bit for each number that a thread has.
static GIVEN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(UNASKED) };
    static HOLDER: Holder = const { Holder };
}

#[cold]
fn give_number() -> usize {
    let lowest = |given: u64| given.trailing_ones() as usize;
    let give = |given| (lowest(given) < THREAD_NUMBERS).then(|| given | 1 << lowest(given));
    let give = |_: &Holder| GIVEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, give);
    let number = match HOLDER.try_with(give) {
        Ok(Ok(given)) => lowest(given),
        // They are all given; or this thread is ending, and could not give it back.
        Ok(Err(_)) | Err(_) => NONE,
    };
    NUMBER.set(number);
    number
}

/// Gives a thread's number back when it ends.
struct Holder;

impl Drop for Holder {
    fn drop(&mut self) {
        let number = NUMBER.replace(NONE);
        if number < THREAD_NUMBERS {
            GIVEN.fetch_and(!(1 << number), Ordering::Release);
        }
    }
}

#[cfg(all(test, not(tidegate_shuttle)))]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::thread;

    /// The numbers of so many threads that live at the same time.
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
        // More than there are numbers, and again, because they come back.
        for _ in 0..3 {
            let numbers = numbers(THREAD_NUMBERS + 8);
            let given: Vec<_> = numbers.iter().filter(|number| **number < THREAD_NUMBERS).collect();
            assert_eq!(given.iter().collect::<HashSet<_>>().len(), given.len());
            // Other tests run beside this one, and have some.
            assert!(given.len() > THREAD_NUMBERS / 4, "only {}", given.len());
        }
    }
}
