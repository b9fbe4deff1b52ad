//! Several requests decided as one: all of them pass, or none is charged (A13).
//!
//! Always   Everything involved is locked before anything is asked (`homes.rs`): no deadlock, and nobody
//!          sees a part of it. All are asked first and charged only if all said yes, so the order in
//!          which they are given changes nothing. Costs for the same key of the same limit are added
//!          up first.

use crate::ask::Ask;
use crate::clock::Clock;
use crate::homes::{Homes, Place};
use crate::table::KeyName;
use crate::turn::Wakes;
use tidegate_core::{Decision, Retry, Span, Verdict};

/// The answer to several requests at once; made by [`check_all`].
///
/// ```
/// use tidegate::{Gate, Limiter, ManualClock, check_all};
///
/// let clock = ManualClock::new();
/// let user = Limiter::with_clock("10/s".parse()?, clock.clone());
/// let site = Gate::with_clock("15/s".parse()?, clock.clone());
///
/// let joint = check_all([user.ask("alice").cost(10), site.ask()]);
/// assert!(joint.decision.is_allow());
/// assert_eq!(joint.each[1].remaining, 14);
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the requests may have been denied: look at `decision`"]
#[non_exhaustive]
pub struct Joint {
    /// All of them together: allowed if all are, with the longest wait and the least remaining.
    pub decision: Decision,
    /// Each of them, in the order given. Where one is denied, nothing is charged: the others say
    /// what they have, untouched.
    pub each: Vec<Decision>,
}

impl Joint {
    /// The answer that these decisions make together: the strictest verdict, the least remaining, the longest
    /// times. For stores that decide several requests as one.
    ///
    /// ```
    /// use tidegate::{Decision, Joint};
    ///
    /// assert!(Joint::of(vec![Decision::UNLIMITED; 2]).decision.is_allow());
    /// ```
    pub fn of(each: Vec<Decision>) -> Self {
        Self { decision: combine(&each), each }
    }
}

/// Decides several requests as one: all are admitted and charged, or none is charged.
///
/// They may ask different limits, different keys, and cost differently. Where nothing is asked,
/// nothing is refused. It never waits: to wait, sleep `retry_after` and ask again. A rule that makes
/// requests wait (`queue`, nginx's) may tell to: then all are charged, and may pass when that time has come.
/// One that would have to wait for longer than its [`Ask::within`] denies instead.
///
/// ```
/// use tidegate::{Gate, ManualClock, check_all};
///
/// let clock = ManualClock::new();
/// let per_second = Gate::with_clock("100/s".parse()?, clock.clone());
/// let per_moment = Gate::with_clock("2/10ms".parse()?, clock.clone());
///
/// for _ in 0..2 {
///     assert!(check_all([per_second.ask(), per_moment.ask()]).decision.is_allow());
/// }
/// let denied = check_all([per_second.ask(), per_moment.ask()]);
/// assert!(denied.decision.is_deny());
/// assert_eq!(per_second.check_n(0).remaining, 98, "the denied one cost nothing");
///
/// let queue = Gate::with_clock("1/s queue capacity 5".parse()?, clock.clone());
/// queue.check();
/// let in_time = |ms| check_all([queue.ask().within(std::time::Duration::from_millis(ms))]).decision;
/// assert!(in_time(999).is_deny() && !in_time(1_000).is_deny(), "its turn is in a second");
/// # Ok::<(), tidegate::RuleError>(())
/// ```
pub fn check_all<C: Clock>(asks: impl IntoIterator<Item = Ask<C>>) -> Joint {
    let asks: Vec<Ask<C>> = asks.into_iter().collect();
    // Dropped last, when no lock is held any more.
    let mut wakes = Wakes::default();
    let mut homes = Homes::of(&asks);
    let places: Vec<Place> = homes.places(&asks);
    let sums = add_up(&asks, &places);
    let mut ask = |sum: &Sum<'_>, question: Question| {
        let (cost, patience) = (sum.cost, sum.patience);
        homes.with(sum.place, question == Question::May, |slot, limit, now| match question {
            Question::Would => slot.peek_within(limit, now, (cost, patience), &mut wakes),
            Question::Has => slot.peek(limit, now, 0, &mut wakes),
            Question::May => slot.check(limit, now, cost, &mut wakes),
        })
    };
    let mut decisions: Vec<Decision> = sums.iter().map(|sum| ask(sum, Question::Would)).collect();
    let is_denied = decisions.iter().any(Decision::is_deny);
    for (decision, sum) in decisions.iter_mut().zip(&sums) {
        if !is_denied {
            *decision = ask(sum, Question::May);
        } else if !decision.is_deny() {
            *decision = ask(sum, Question::Has);
        }
    }
    for (decision, sum) in decisions.iter().zip(&sums) {
        let named = (sum.place, sum.name);
        match (is_denied, decision.is_deny()) {
            (false, _) => homes.note(named, sum.cost, decision),
            (true, true) => homes.note(named, 0, decision),
            // It would have said yes, and admitted nobody.
            (true, false) => homes.hear(named, decision),
        }
    }
    homes.leave_unused();
    drop(homes);
    let each = places.iter().map(|place| decisions[position(&sums, *place)]).collect();
    Joint { decision: combine(&decisions), each }
}

/// Would it admit this; what has it left; may this pass now?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Question {
    Would,
    Has,
    May,
}

/// What is asked of one state.
struct Sum<'a> {
    place: Place,
    name: &'a KeyName,
    cost: u64,
    patience: Span,
}

fn position(sums: &[Sum<'_>], place: Place) -> usize {
    sums.iter().position(|sum| sum.place == place).expect("every ask was added to a sum")
}

fn add_up<'a, C: Clock>(asks: &'a [Ask<C>], places: &[Place]) -> Vec<Sum<'a>> {
    let mut sums: Vec<Sum<'a>> = Vec::with_capacity(asks.len());
    for (ask, place) in asks.iter().zip(places) {
        if let Some(sum) = sums.iter_mut().find(|sum| sum.place == *place) {
            // More than can be said is more than can be admitted.
            sum.cost = sum.cost.saturating_add(ask.cost);
            sum.patience = sum.patience.min(ask.patience);
        } else {
            let (cost, patience) = (ask.cost, ask.patience);
            sums.push(Sum { place: *place, name: ask.spot.name(), cost, patience });
        }
    }
    sums
}

/// The strictest verdict, the least remaining, the longest time.
fn combine(decisions: &[Decision]) -> Decision {
    let mut all = Decision::UNLIMITED;
    for decision in decisions {
        all.verdict = stricter(all.verdict, decision.verdict);
        all.limit = all.limit.min(decision.limit);
        all.remaining = all.remaining.min(decision.remaining);
        all.reset_after = all.reset_after.max(decision.reset_after);
    }
    all
}

fn stricter(a: Verdict, b: Verdict) -> Verdict {
    match (a, b) {
        (Verdict::Deny(a), Verdict::Deny(b)) => Verdict::Deny(longer(a, b)),
        (deny @ Verdict::Deny(_), _) | (_, deny @ Verdict::Deny(_)) => deny,
        (Verdict::Wait(a), Verdict::Wait(b)) => Verdict::Wait(a.max(b)),
        (wait @ Verdict::Wait(_), _) | (_, wait @ Verdict::Wait(_)) => wait,
        (Verdict::Allow, Verdict::Allow) => Verdict::Allow,
    }
}

fn longer(a: Retry, b: Retry) -> Retry {
    match (a, b) {
        (Retry::Never, _) | (_, Retry::Never) => Retry::Never,
        (Retry::OnRelease, _) | (_, Retry::OnRelease) => Retry::OnRelease,
        (Retry::After(a), Retry::After(b)) => Retry::After(a.max(b)),
    }
}
