//! Several requests decided as one: all of them pass, or none is charged (A13).
//!
//! Always   Every state is locked before anything is decided (`lock_set.rs`): no deadlock, and no other request sees
//!          a part of the charges. Everything is decided first (`charge.rs`) and charged only if nothing is denied, so
//!          the order of the requests changes nothing. Costs for the same key of the same limit are added up first.

mod charge;
mod lock_set;

use crate::clock::Clock;
use crate::joint::lock_set::{Charge, LockSet};
use crate::request::Request;
use crate::store::Joint;
use crate::sync::wake::WakeList;
use smallvec::SmallVec;
use tidegate_core::Decision;

/// As many requests as most callers decide together; more of them are kept on the heap.
const INLINE_MAX: usize = 4;
type InlineVec<T> = SmallVec<[T; INLINE_MAX]>;

/// Decides several requests as one: all are admitted and charged, or none is charged.
///
/// They may be for different limits and keys, and have different costs. No requests at all are admitted. The decision
/// never waits: to wait, sleep for `retry_after` and decide again. Under a rule that delays requests (`queue`, nginx's)
/// the verdict may be to wait: then all are charged, and pass after that time. A request that would have to wait for
/// longer than its [`Request::within`] is denied instead.
///
/// ```
/// use tidegate::{Gate, ManualClock, check_all};
///
/// let clock = ManualClock::new();
/// let per_second = Gate::with_clock("100/s".parse()?, clock.clone());
/// let per_moment = Gate::with_clock("2/10ms".parse()?, clock.clone());
///
/// for _ in 0..2 {
///     assert!(check_all([per_second.request(), per_moment.request()]).decision.is_allow());
/// }
/// let denied = check_all([per_second.request(), per_moment.request()]);
/// assert!(denied.decision.is_deny());
/// assert_eq!(per_second.check_n(0).remaining, 98, "the denied request cost nothing");
///
/// let queue = Gate::with_clock("1/s queue capacity 5".parse()?, clock.clone());
/// let _ = queue.check();
/// let within = |ms| check_all([queue.request().within(std::time::Duration::from_millis(ms))]).decision;
/// assert!(within(999).is_deny() && !within(1_000).is_deny(), "its turn is in a second");
/// # Ok::<(), tidegate::RuleError>(())
/// ```
pub fn check_all<C: Clock>(requests: impl IntoIterator<Item = Request<C>>) -> Joint {
    let mut all: InlineVec<Request<C>> = InlineVec::new();
    for request in requests {
        all.push(request);
    }
    // Dropped last, when no lock is held any more.
    let mut wakes = WakeList::default();
    let mut each = vec![Decision::UNLIMITED; all.len()];
    decide_all(&all, &mut each, &mut wakes);
    Joint::of(each)
}

/// Decides under the locks, and charges unless a request is denied.
#[inline]
fn decide_all<C: Clock>(requests: &[Request<C>], each: &mut [Decision], wakes: &mut WakeList) {
    let mut charges: InlineVec<Charge<'_, C>> = InlineVec::new();
    charges.extend(requests.iter().enumerate().map(|(index, request)| Charge::new(index, request)));
    let mut locks = InlineVec::new();
    let mut locks = LockSet::new(&mut charges, &mut locks);
    if locks.decide(each, wakes) {
        locks.charge(each, wakes);
    } else {
        locks.reject(each, wakes);
    }
    locks.copy_merged(each);
}
