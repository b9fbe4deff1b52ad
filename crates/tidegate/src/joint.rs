//! Several requests decided as one: all of them pass, or none is charged (A13).
//!
//! Always   Every gate and table involved is locked, in the order of their numbers, before anything is
//!          asked: no deadlock, and nobody sees a part of it. All are asked first and charged only if
//!          all said yes, so the order in which they are given changes nothing. Costs for the same
//!          key of the same limit are added up first.

use crate::ask::Ask;
use crate::clock::Clock;
use crate::gate::Held;
use crate::slot::Slot;
use crate::spot::Spot;
use crate::sync::MutexGuard;
use crate::table::{Fingerprint, Keys};
use crate::turn::Wakes;
use tidegate_core::{Decision, Limit, Retry, Timestamp, Verdict};

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

/// Decides several requests as one: all are admitted and charged, or none is charged.
///
/// They may ask different limits, different keys, and cost differently. Where nothing is asked,
/// nothing is refused. It never waits, and [`Ask::within`] changes nothing: to wait, sleep
/// `retry_after` and ask again.
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
/// # Ok::<(), tidegate::RuleError>(())
/// ```
pub fn check_all<C: Clock>(asks: impl IntoIterator<Item = Ask<C>>) -> Joint {
    let asks: Vec<Ask<C>> = asks.into_iter().collect();
    // Dropped last, when no lock is held any more.
    let mut wakes = Wakes::default();
    let mut homes = lock_all(&asks);
    let costs = add_up(&asks);
    let mut ask = |sum: &Sum<'_, C>, question: Question| {
        let home = find(&mut homes, sum.spot);
        let key = sum.key();
        match question {
            Question::Would => home.look(key, |s, l, now| s.peek(l, now, sum.cost, &mut wakes)),
            Question::Has => home.look(key, |s, l, now| s.peek(l, now, 0, &mut wakes)),
            Question::May => home.with(key, |s, l, now| s.check(l, now, sum.cost, &mut wakes)),
        }
    };
    let mut decisions: Vec<Decision> = costs.iter().map(|sum| ask(sum, Question::Would)).collect();
    let is_denied = decisions.iter().any(Decision::is_deny);
    for (decision, sum) in decisions.iter_mut().zip(&costs) {
        if !is_denied {
            *decision = ask(sum, Question::May);
        } else if !decision.is_deny() {
            *decision = ask(sum, Question::Has);
        }
    }
    let each = asks.iter().map(|ask| decisions[position(&costs, &ask.spot)]).collect();
    Joint { decision: combine(&decisions), each }
}

/// Would it admit this; what has it left; may this pass now?
#[derive(Clone, Copy)]
enum Question {
    Would,
    Has,
    May,
}

/// What is asked of one key of one limit.
struct Sum<'a, C: Clock> {
    spot: &'a Spot<C>,
    cost: u64,
}

impl<C: Clock> Sum<'_, C> {
    fn key(&self) -> Option<Fingerprint> {
        key_of(self.spot)
    }
}

fn key_of<C: Clock>(spot: &Spot<C>) -> Option<Fingerprint> {
    match spot {
        Spot::Gate(_) => None,
        Spot::Key(_, key) => Some(*key),
    }
}

fn number_of<C: Clock>(spot: &Spot<C>) -> u64 {
    match spot {
        Spot::Gate(post) => post.number,
        Spot::Key(table, _) => table.number,
    }
}

fn is_same<C: Clock>(a: &Spot<C>, b: &Spot<C>) -> bool {
    number_of(a) == number_of(b) && key_of(a) == key_of(b)
}

fn position<C: Clock>(sums: &[Sum<'_, C>], spot: &Spot<C>) -> usize {
    sums.iter().position(|sum| is_same(sum.spot, spot)).expect("every ask was added to a sum")
}

fn add_up<C: Clock>(asks: &[Ask<C>]) -> Vec<Sum<'_, C>> {
    let mut sums: Vec<Sum<'_, C>> = Vec::with_capacity(asks.len());
    for ask in asks {
        match sums.iter_mut().find(|sum| is_same(sum.spot, &ask.spot)) {
            // More than can be said is more than can be admitted.
            Some(sum) => sum.cost = sum.cost.saturating_add(ask.cost),
            None => sums.push(Sum { spot: &ask.spot, cost: ask.cost }),
        }
    }
    sums
}

/// A gate or a table, locked.
enum Home<'a, C: Clock> {
    Gate(Held<'a, C>),
    Table(MutexGuard<'a, Keys>, Timestamp),
}

impl<C: Clock> Home<'_, C> {
    fn with<R>(
        &mut self,
        key: Option<Fingerprint>,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> R {
        match self {
            Self::Gate(held) => {
                let now = held.now;
                let slow = &mut *held.slow;
                work(&mut slow.slot, &slow.limit, now)
            }
            Self::Table(keys, now) => keys.with(key.expect("a table is asked by key"), *now, work),
        }
    }

    fn look<R>(
        &mut self,
        key: Option<Fingerprint>,
        work: impl FnOnce(&mut Slot, &Limit, Timestamp) -> R,
    ) -> R {
        match self {
            Self::Gate(_) => self.with(key, work),
            Self::Table(keys, now) => keys.look(key.expect("a table is asked by key"), *now, work),
        }
    }
}

fn lock_all<'a, C: Clock>(asks: &'a [Ask<C>]) -> Vec<(u64, Home<'a, C>)> {
    let mut spots: Vec<&'a Spot<C>> = asks.iter().map(|ask| &ask.spot).collect();
    spots.sort_by_key(|spot| number_of(spot));
    spots.dedup_by_key(|spot| number_of(spot));
    let lock = |spot: &'a Spot<C>| match spot {
        Spot::Gate(post) => (post.number, Home::Gate(post.hold())),
        Spot::Key(table, _) => {
            let (keys, now) = table.hold();
            (table.number, Home::Table(keys, now))
        }
    };
    spots.into_iter().map(lock).collect()
}

fn find<'h, 'a, C: Clock>(
    homes: &'h mut [(u64, Home<'a, C>)],
    spot: &Spot<C>,
) -> &'h mut Home<'a, C> {
    let number = number_of(spot);
    let index = homes.binary_search_by_key(&number, |(number, _)| *number);
    &mut homes[index.expect("every spot was locked")].1
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
