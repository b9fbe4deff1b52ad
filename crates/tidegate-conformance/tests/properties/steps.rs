//! Draws the steps of a case, and shortens a list of steps that refutes a claim.
//!
//! There are millions of cases with dozens of steps, so a step is drawn from one random number: proptest's tree of choices for
//! each of its five parts took longer than most claims.

use crate::generate::{Action, Cost, Delta, Step};
use proptest::prelude::{RngExt, prop_assert};
use proptest::strategy::{NewTree, Strategy, ValueTree};
use proptest::test_runner::{TestError, TestRng, TestRunner};

const STEPS_MAX: usize = 59;

/// From one to [`STEPS_MAX`] steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    /// Whether the clock is sometimes set back.
    pub(crate) is_unsteady: bool,
    /// Whether there are refunds.
    pub(crate) has_refunds: bool,
}

impl Strategy for Steps {
    type Tree = Shorter;
    type Value = Vec<Step>;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let rng = runner.rng();
        let count = rng.random_range(1..=STEPS_MAX);
        Ok(Shorter::new((0..count).map(|_| self.step(rng)).collect()))
    }
}

impl Steps {
    fn step(self, rng: &mut TestRng) -> Step {
        let [choices, amount, units] = rng.random::<[u64; 3]>();
        // Twenty bits are enough for an even choice among thirty.
        let choose = |nth: u32, among: u64| (((choices >> (20 * nth)) & 0xf_ffff) * among) >> 20;
        let delta = choose(0, if self.is_unsteady { FORWARD + BACKWARD } else { FORWARD });
        let cost = cost_of(choose(1, COSTS), units);
        let is_refund = self.has_refunds && choose(2, ACTIONS) == 0;
        let action = if is_refund { Action::Refund(cost) } else { Action::Take(cost) };
        Step { delta: delta_of(delta, amount), action }
    }
}

/// One action in this many is a refund.
const ACTIONS: u64 = 10;
/// The numbers that choose a delta: those that let time pass, and those that set the clock back.
const FORWARD: u64 = 23;
const BACKWARD: u64 = 6;

fn delta_of(choice: u64, number: u64) -> Delta {
    match choice {
        0..6 => Delta::None,
        6..8 => Delta::Us(1 + number % 10),
        8..11 => Delta::Us(magnitude(number, 40)),
        11 => Delta::Us(magnitude(number, 58)),
        12..15 => Delta::RetryAfter,
        15..17 => Delta::OneUsLessThanRetryAfter,
        17 => Delta::ResetAfter,
        18 => Delta::OneUsLessThanResetAfter,
        19..FORWARD => Delta::ThousandthsOfReset(number % 1_500),
        FORWARD => Delta::BackUs(1 + number % 10),
        24..26 => Delta::BackUs(magnitude(number, 50)),
        _ => Delta::BackThousandthsOfReset(number % 1_500),
    }
}

/// The numbers that choose a cost.
const COSTS: u64 = 18;

fn cost_of(choice: u64, number: u64) -> Cost {
    match choice {
        0 => Cost::Zero,
        1..7 => Cost::Units(1 + number % 3),
        7 => Cost::Units(magnitude(number, 64)),
        8 => Cost::Limit,
        9 => Cost::LimitAndOne,
        10..12 => Cost::Remaining,
        12..14 => Cost::RemainingAndOne,
        14 => Cost::Max,
        _ => Cost::ThousandthsOfLimit(number % 1_000),
    }
}

/// Returns a number below 2^bits, evenly spread over the orders of magnitude: a part of `number` chooses the magnitude, and the rest
/// the digits.
fn magnitude(number: u64, bits: u64) -> u64 {
    let (bits, number) = (1 + number % bits, number / bits);
    (number & (u64::MAX >> (64 - bits))).max(1)
}

/// Steps that refute a claim, and the attempts to refute it with fewer steps: without half of them, without a quarter, and so on
/// down to one, and then with the simplest step in place of each.
#[derive(Clone, Debug)]
pub(crate) struct Shorter {
    steps: Vec<Step>,
    /// The steps before the last attempt.
    before: Vec<Step>,
    /// The next attempt leaves out this many steps, or replaces one step if this is zero ...
    length: usize,
    /// ... from this index on.
    from: usize,
}

const SIMPLEST: Step = Step { delta: Delta::None, action: Action::Take(Cost::Units(1)) };

impl Shorter {
    fn new(steps: Vec<Step>) -> Self {
        Self { length: steps.len().div_ceil(2), before: Vec::new(), from: 0, steps }
    }

    fn next_try(&mut self) -> bool {
        while self.length > 0 {
            // At least one step remains.
            if self.from < self.steps.len() && self.length < self.steps.len() {
                let end = self.steps.len().min(self.from + self.length);
                self.before.clone_from(&self.steps);
                self.steps.drain(self.from..end);
                return true;
            }
            self.from = 0;
            self.length /= 2;
        }
        if self.from < self.steps.len() {
            self.before.clone_from(&self.steps);
            self.steps[self.from] = SIMPLEST;
            return true;
        }
        false
    }
}

impl ValueTree for Shorter {
    type Value = Vec<Step>;

    fn current(&self) -> Vec<Step> {
        self.steps.clone()
    }

    /// The shorter list still refutes the claim: continues from it.
    fn simplify(&mut self) -> bool {
        if self.length == 0 && !self.before.is_empty() {
            self.from += 1;
        }
        self.next_try()
    }

    /// The shorter list does not refute the claim: returns to the longer one, and makes the next attempt.
    fn complicate(&mut self) -> bool {
        self.steps.clone_from(&self.before);
        self.from += self.length.max(1);
        self.next_try()
    }
}

#[test]
fn a_refutation_keeps_the_steps_it_needs_and_no_others() {
    let is_max = |step: &Step| matches!(step.action, Action::Take(Cost::Max));
    let steps = Steps { is_unsteady: true, has_refunds: true };
    let refuted = TestRunner::deterministic().run(&steps, |steps| {
        prop_assert!(steps.iter().filter(|step| is_max(step)).count() < 2);
        Ok(())
    });
    let Err(TestError::Fail(_, steps)) = refuted else { panic!("two is not many: {refuted:?}") };
    assert_eq!(steps.len(), 2, "{steps:?}");
    assert!(steps.iter().all(is_max), "{steps:?}");
}
