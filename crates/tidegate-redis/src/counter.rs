//! A counter that many threads add to at memory's speed.
//!
//! Always   Threads add in different places, so that what one writes does not take the line from another; who reads adds
//!          them up.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// More threads than this share places, which costs them time and nothing else.
const PLACES: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Counter {
    places: [Place; PLACES],
}

/// Alone on its lines: processors fetch two at a time.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Place(AtomicU64);

thread_local! {
    static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl Counter {
    #[inline]
    pub(crate) fn add_one(&self) {
        self.places[own() % PLACES].0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.places.iter().map(|place| place.0.load(Ordering::Relaxed)).sum()
    }
}

#[inline]
fn own() -> usize {
    match OWN.get() {
        usize::MAX => choose(),
        own => own,
    }
}

#[cold]
fn choose() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let own = NEXT.fetch_add(1, Ordering::Relaxed) % PLACES;
    OWN.set(own);
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_adds_is_counted() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * PLACES {
                scope.spawn(|| (0..100).for_each(|_| counter.add_one()));
            }
        });
        assert_eq!(counter.read(), 200 * PLACES as u64);
    }
}
