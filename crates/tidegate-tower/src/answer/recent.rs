//! Values of fields that a thread has written lately: clients that come equally often are told the same, and those denied are.
//! To share a value takes some 300 instructions less than to write one, put it into memory and free that.
//!
//! State    For each thread: [`PLACES`] values, each with what it says, at the place that this says.
//! Always   A value is kept only when it is written for the second time, so that who is never told the same twice pays
//!          for a comparison and nothing else.

use http::HeaderValue;
use std::cell::RefCell;
use std::thread::LocalKey;

/// How many values a thread keeps.
const PLACES: usize = 16;

#[derive(Debug)]
pub(super) struct Recent<K> {
    places: [Place<K>; PLACES],
}

#[derive(Debug)]
struct Place<K> {
    says: Option<K>,
    value: Option<HeaderValue>,
}

/// What a value says.
pub(super) trait Says: Copy + Eq + 'static {
    /// What this thread has written lately.
    fn recent() -> &'static LocalKey<RefCell<Recent<Self>>>;

    /// A number that differs for what is likely to be said at the same time.
    fn number(self) -> u64;

    /// Writes it.
    fn written(self) -> HeaderValue;

    /// The value that says this: one that is kept, or a new one.
    #[inline]
    fn value(self) -> HeaderValue {
        // A thread that ends has nothing kept any more.
        let kept = Self::recent().try_with(|recent| recent.borrow_mut().recall(self));
        match kept {
            Ok(Some(value)) => value,
            _ => self.written(),
        }
    }
}

impl<K: Says> Recent<K> {
    pub(super) const fn new() -> Self {
        Self { places: [const { Place { says: None, value: None } }; PLACES] }
    }

    /// The value that says this, if this was said before.
    #[inline]
    fn recall(&mut self, says: K) -> Option<HeaderValue> {
        #[expect(clippy::cast_possible_truncation, reason = "only the lowest bits are wanted")]
        let place = &mut self.places[says.number() as usize % PLACES];
        if place.says != Some(says) {
            place.says = Some(says);
            // Looked at first: it mostly is none already, and by samples to write that over it was most of the time spent here.
            if place.value.is_some() {
                place.value = None;
            }
            return None;
        }
        Some(place.value.get_or_insert_with(|| says.written()).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Number(u64);

    thread_local! {
        static RECENT: RefCell<Recent<Number>> = const { RefCell::new(Recent::new()) };
        static WRITTEN: Cell<u64> = const { Cell::new(0) };
    }

    impl Says for Number {
        fn recent() -> &'static LocalKey<RefCell<Recent<Self>>> {
            &RECENT
        }

        fn number(self) -> u64 {
            self.0 / 4
        }

        fn written(self) -> HeaderValue {
            WRITTEN.set(WRITTEN.get() + 1);
            HeaderValue::from(self.0)
        }
    }

    proptest! {
        #[test]
        fn a_value_says_what_was_asked_for(asked in proptest::collection::vec(0_u64..200, 1..300)) {
            for says in asked {
                prop_assert_eq!(Number(says).value(), HeaderValue::from(says));
            }
        }
    }

    #[test]
    fn what_was_written_twice_is_not_written_again() {
        let before = WRITTEN.get();
        for _ in 0..5 {
            assert_eq!(Number(1_000).value(), "1000");
        }
        assert_eq!(WRITTEN.get() - before, 2);
    }
}
