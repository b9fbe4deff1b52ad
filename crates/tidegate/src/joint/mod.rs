//! Several requests decided as one: all of them pass, or none is charged (A13).
//!
//! Always   Everything involved is locked before anything is asked (`locks.rs`): no deadlock, and nobody
//!          sees a part of it. All are asked first and charged only if all said yes, so the order in
//!          which they are given changes nothing. Costs for the same key of the same limit are added
//!          up first.

mod lock_set;

use crate::clock::Clock;
use crate::joint::lock_set::{LockSet, StateId};
use crate::request::Request;
use crate::store::{Joint, KeyName};
use crate::sync::wake::WakeList;
use tidegate_core::{Decision, Span};

/// Decides several requests as one: all are admitted and charged, or none is charged.
///
/// They may ask different limits, different keys, and cost differently. Where nothing is asked,
/// nothing is refused. It never waits: to wait, sleep `retry_after` and ask again. A rule that makes
/// requests wait (`queue`, nginx's) may tell to: then all are charged, and may pass when that time has come.
/// One that would have to wait for longer than its [`Request::within`] denies instead.
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
/// assert_eq!(per_second.check_n(0).remaining, 98, "the denied one cost nothing");
///
/// let queue = Gate::with_clock("1/s queue capacity 5".parse()?, clock.clone());
/// let _ = queue.check();
/// let in_time = |ms| check_all([queue.request().within(std::time::Duration::from_millis(ms))]).decision;
/// assert!(in_time(999).is_deny() && !in_time(1_000).is_deny(), "its turn is in a second");
/// # Ok::<(), tidegate::RuleError>(())
/// ```
pub fn check_all<C: Clock>(requests: impl IntoIterator<Item = Request<C>>) -> Joint {
    let requests: Vec<Request<C>> = requests.into_iter().collect();
    // Dropped last, when no lock is held any more.
    let mut wakes = WakeList::default();
    let mut locks = LockSet::of(&requests);
    let states: Vec<StateId> = locks.states(&requests);
    let charges = add_up(&requests, &states);
    let mut run = |charge: &Charge<'_>, pass: Pass| {
        let (cost, max_wait) = (charge.cost, charge.max_wait);
        locks.with(charge.state, pass == Pass::Charge, |slot, limit, now| match pass {
            Pass::Peek => slot.peek_within(limit, now, (cost, max_wait), &mut wakes),
            Pass::Numbers => slot.peek(limit, now, 0, &mut wakes),
            Pass::Charge => slot.check(limit, now, cost, &mut wakes),
        })
    };
    let mut decisions: Vec<Decision> =
        charges.iter().map(|charge| run(charge, Pass::Peek)).collect();
    let is_denied = decisions.iter().any(Decision::is_deny);
    for (decision, charge) in decisions.iter_mut().zip(&charges) {
        if !is_denied {
            *decision = run(charge, Pass::Charge);
        } else if !decision.is_deny() {
            *decision = run(charge, Pass::Numbers);
        }
    }
    for (decision, charge) in decisions.iter().zip(&charges) {
        let named = (charge.state, charge.name);
        match (is_denied, decision.is_deny()) {
            (false, _) => locks.note(named, charge.cost, decision),
            (true, true) => locks.note(named, 0, decision),
            // It would have said yes, and admitted nobody.
            (true, false) => locks.hear(named, decision),
        }
    }
    locks.leave_unused();
    drop(locks);
    let each = states.iter().map(|state| decisions[position(&charges, *state)]).collect();
    Joint::new(&decisions, each)
}

/// Would it admit this; what has it left; may this pass now?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Peek,
    Numbers,
    Charge,
}

/// What is asked of one state.
struct Charge<'a> {
    state: StateId,
    name: &'a KeyName,
    cost: u64,
    max_wait: Span,
}

fn position(charges: &[Charge<'_>], state: StateId) -> usize {
    charges
        .iter()
        .position(|charge| charge.state == state)
        .expect("every request was added to a sum")
}

fn add_up<'a, C: Clock>(requests: &'a [Request<C>], states: &[StateId]) -> Vec<Charge<'a>> {
    let mut charges: Vec<Charge<'a>> = Vec::with_capacity(requests.len());
    for (request, state) in requests.iter().zip(states) {
        if let Some(charge) = charges.iter_mut().find(|charge| charge.state == *state) {
            // More than can be said is more than can be admitted.
            charge.cost = charge.cost.saturating_add(request.cost);
            charge.max_wait = charge.max_wait.min(request.max_wait);
        } else {
            let (cost, max_wait) = (request.cost, request.max_wait);
            charges.push(Charge { state: *state, name: request.target.name(), cost, max_wait });
        }
    }
    charges
}
