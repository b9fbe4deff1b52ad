//! Clocks that step, stand, jump to the end of time or lag (T22, T25): gates and keys answer as the pure
//! limit does, and the clocks keep their own promises.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod rules;

use proptest::prelude::*;
use rules::EVERY;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tidegate::clock::CachedClock;
use tidegate::{Clock, Decision, Gate, Limiter, ManualClock, Span, SystemClock, Timestamp};
use tidegate_core::{Limit, State};

/// Rates whose fractions do not reduce, so that a word of ticks is soon full; and huge ones.
const AWKWARD: [&str; 8] = [
    "999983/s",
    "999983/s burst 3",
    "9999999999/s",
    "9999999999/s burst 7",
    "9999999967/s leaky capacity 2",
    "1/36500day burst 2",
    "9007199254740992/36500day",
    "7/36499day leaky capacity 9007199254740992",
];

#[derive(Clone, Copy, Debug)]
enum Event {
    Check(u64),
    Peek(u64),
    Refund(u64),
    Reset,
    Later(u64),
    Back(u64),
    Jump(u64),
}

fn cost() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0_u64..5, 2 => 5_u64..50, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn event() -> impl Strategy<Value = Event> {
    let span = prop_oneof![0_u64..10, 0_u64..2_000_000, 0_u64..100_000_000_000, any::<u64>()];
    let instant = prop_oneof![
        prop::sample::select(vec![
            0,
            1,
            1 << 32,
            (1 << 53) - 1,
            (1 << 53) + 1,
            BIRTH - 1,
            BIRTH,
            BIRTH + 1
        ]),
        prop::sample::select(vec![1 << 63, u64::MAX / 2, u64::MAX - 1, u64::MAX]),
        any::<u64>(),
    ];
    prop_oneof![
        12 => cost().prop_map(Event::Check),
        2 => cost().prop_map(Event::Peek),
        2 => cost().prop_map(Event::Refund),
        1 => Just(Event::Reset),
        6 => span.prop_map(Event::Later),
        2 => (0_u64..5_000_000).prop_map(Event::Back),
        1 => instant.prop_map(Event::Jump),
    ]
}

const BIRTH: u64 = 1_704_067_200_000_000;

/// A gate, a key and the pure limit under one rule and one clock.
struct Three {
    clock: ManualClock,
    gate: Gate<ManualClock>,
    limiter: Limiter<ManualClock>,
    limit: Limit,
    state: State,
    /// A key to which nothing was ever charged leaves no trace, not even of when it was looked at.
    key_state: Option<State>,
}

/// What the pure limit says, and what is to say the same.
struct Answers {
    gate: [Decision; 2],
    key: [Decision; 2],
}

impl Three {
    fn new(rule: &str) -> Self {
        let clock = ManualClock::new();
        let limit: Limit = rule.parse().unwrap();
        let gate = Gate::with_clock(rule.parse().unwrap(), clock.clone());
        let limiter = Limiter::with_clock(rule.parse().unwrap(), clock.clone());
        Self { gate, limiter, state: limit.fresh(clock.now()), limit, clock, key_state: None }
    }

    /// Returns the decision of each of the three; `None` for an event that only moves the clock.
    fn handle(&mut self, event: Event) -> Option<Answers> {
        let now = self.clock.now();
        let (limit, state) = (&self.limit, &mut self.state);
        let fresh = || limit.fresh(Timestamp::from_micros(BIRTH));
        match event {
            Event::Check(cost) => {
                let gate = [limit.decide(state, now, cost), self.gate.check_n(cost)];
                let mut key_state = self.key_state.clone().unwrap_or_else(fresh);
                let pure = limit.decide(&mut key_state, now, cost);
                if self.key_state.is_some() || (cost > 0 && !pure.is_deny()) {
                    self.key_state = Some(key_state);
                }
                return Some(Answers { gate, key: [pure, self.limiter.check_n("alice", cost)] });
            }
            Event::Peek(cost) => {
                let peek = |ask: tidegate::Request<ManualClock>| ask.cost(cost).peek();
                let key_state = self.key_state.clone().unwrap_or_else(fresh);
                let [pure, pure_key] =
                    [state, &key_state].map(|state| limit.peek(state, now, cost));
                let (gate, key) = (peek(self.gate.request()), peek(self.limiter.request("alice")));
                return Some(Answers { gate: [pure, gate], key: [pure_key, key] });
            }
            Event::Refund(cost) => {
                for state in self.key_state.iter_mut().chain([state]) {
                    limit.refund(state, now, cost);
                    // No key has more than a new one.
                    let rest = |state: &State| limit.peek(state, now, 0).reset_after;
                    if rest(state) < rest(&fresh()) {
                        *state = fresh();
                    }
                }
                self.gate.refund(cost);
                self.limiter.refund("alice", cost);
            }
            Event::Reset => {
                self.key_state.iter_mut().chain([state]).for_each(|state| *state = fresh());
                self.gate.reset();
                self.limiter.reset("alice");
            }
            Event::Later(us) => self.clock.advance(Span::from_micros(us)),
            Event::Back(us) => self.clock.set(now - Span::from_micros(us)),
            Event::Jump(us) => self.clock.set(Timestamp::from_micros(us)),
        }
        None
    }
}

fn any_rule() -> impl Strategy<Value = &'static str> {
    prop::sample::select([EVERY.to_vec(), AWKWARD.to_vec()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(6_000) })]

    // T22, T25.
    /// Any time from the creation of the limiter on, in any order.
    #[test]
    fn a_gate_a_key_and_the_pure_limit_decide_the_same(
        rule in any_rule(),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut three = Three::new(rule);
        for event in events {
            let event = match event {
                Event::Jump(us) => Event::Jump(us.max(BIRTH)),
                Event::Back(us) => Event::Back(us.min(three.clock.now().as_micros() - BIRTH)),
                other => other,
            };
            if let Some(Answers { gate, key }) = three.handle(event) {
                prop_assert_eq!(gate[1], gate[0], "{} at the gate, {:?}", rule, event);
                prop_assert_eq!(key[1], key[0], "{} by key, {:?}", rule, event);
            }
        }
    }

    // T22, T25.
    /// The same before the creation, for keys.
    #[test]
    fn a_key_and_the_pure_limit_decide_the_same_at_any_time(
        rule in any_rule(),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut three = Three::new(rule);
        for event in events {
            if let Some(Answers { key, .. }) = three.handle(event) {
                prop_assert_eq!(key[1], key[0], "{} by key, {:?}", rule, event);
            }
        }
    }

    // T22, T25.
    /// The same before the creation, for gates.
    #[test]
    fn a_gate_and_the_pure_limit_decide_the_same_at_any_time(
        rule in any_rule(),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut three = Three::new(rule);
        for event in events {
            if let Some(Answers { gate, .. }) = three.handle(event) {
                prop_assert_eq!(gate[1], gate[0], "{} at the gate, {:?}", rule, event);
            }
        }
    }
}

/// B7, T20: a store that evicts idle keys decides like one that keeps all keys.
#[test]
fn evicting_a_key_changes_no_decision() {
    for rule in EVERY {
        let clock = ManualClock::new();
        let limiter = || Limiter::with_clock(rule.parse().unwrap(), clock.clone());
        let (forgets, remembers) = (limiter(), limiter());
        for round in 0..60_u64 {
            for other in 0..1_100_u64 {
                let _ = forgets.check_n(&(round, other), 1);
            }
            for (key, cost) in [("often", 1), ("often", 2), ("seldom", round % 9 / 8)] {
                let answers = [&forgets, &remembers].map(|limiter| limiter.check_n(key, cost));
                assert_eq!(answers[0], answers[1], "{rule}, {key} in round {round}");
            }
            if round % 7 == 6 {
                forgets.refund("often", 1);
                remembers.refund("often", 1);
            }
            clock.advance(Span::from_micros(round % 10 * 777_777));
        }
    }
}

// T22.
/// Time steps back to before the gate was made. It may refuse for as long as it takes to fill, and
/// no longer: not for as long as the step.
#[test]
fn a_step_back_to_before_its_creation_does_not_block_a_gate() {
    for rule in ["10/s", "3/s paced", "10/s leaky capacity 5"] {
        for used in [0, 1] {
            let clock = ManualClock::new();
            let gate = Gate::with_clock(rule.parse().unwrap(), clock.clone());
            let _ = gate.check_n(used);
            clock.set(clock.now() - Span::from_secs(3_600));
            let wait = gate.check().retry_after().unwrap_or(Span::ZERO);
            assert!(wait <= Span::from_secs(1));
            for _ in 0..100 {
                let _ = gate.check_n(0);
                clock.advance(Span::from_millis(20));
            }
            assert!(gate.check().is_allow(), "{rule}, {used} used: refused 2 s after the step");
        }
    }
}

/// Every step of T22, for every rule: afterwards a request is admitted within the drain time of the rule, and never more at
/// once than its capacity.
#[test]
fn a_clock_step_denies_for_at_most_the_drain_time_and_refunds_at_most_a_burst() {
    let steps = [1_000, 1_000_000, 3_600_000_000, 31_557_600_000_000];
    for rule in EVERY.into_iter().filter(|rule| !rule.contains("smooth") && !rule.contains("warm"))
    {
        for step in steps.map(Span::from_micros) {
            let clock = ManualClock::at(Timestamp::from_micros(BIRTH - 100_000_000_000_000));
            let gate = Gate::with_clock(rule.parse().unwrap(), clock.clone());
            let limiter = Limiter::with_clock(rule.parse().unwrap(), clock.clone());
            clock.set(Timestamp::from_micros(BIRTH));
            let ask = || [gate.check(), limiter.check("alice")];
            while !ask()[0].is_deny() {}
            let drain = gate.check_n(0).reset_after;
            clock.set(clock.now() - step);
            for decision in ask() {
                let wait = decision.retry_after().unwrap_or(Span::ZERO);
                // Two counters may have to fade one after the other.
                assert!(wait <= drain + drain, "{rule}: {wait} after a step of {step} back");
            }
            clock.advance(step + step);
            let admitted = (0..200).filter(|_| !ask()[0].is_deny()).count();
            let most = usize::try_from(gate.check_n(0).limit).unwrap();
            assert!(admitted <= most, "{rule}: {admitted} after a step of {step} forward");
        }
    }
}

/// Where windows end and begin: at midnight, and for the anchored ones at 17 minutes past the hour.
const EDGES: [u64; 2] = [1_704_067_200_000_000, 1_704_068_220_000_000];

// T22.
/// A clock that goes back and forth by a little, as the counters of two cores do: time has not
/// passed, and a thousand times nothing is at most a burst.
#[test]
fn clock_skew_refills_nothing() {
    let mut brought = Vec::new();
    let never_refuse = ["smooth", "warmup"];
    let refusing = |rule: &&str| !never_refuse.iter().any(|word| rule.contains(word));
    let fast = ["700000/s burst 9", "1000000/s paced", "2000000/s leaky capacity 9"];
    let slow = EVERY.into_iter().filter(refusing);
    // A step is ridden out if it is no longer than what it takes to drain.
    let trembles =
        slow.flat_map(|rule| [(rule, 1), (rule, 1_000)]).chain(fast.map(|rule| (rule, 1)));
    for (rule, amplitude) in trembles {
        let amplitude = Span::from_micros(amplitude);
        for edge in EDGES.map(Timestamp::from_micros) {
            for (early, late) in [(Span::ZERO, amplitude), (amplitude, Span::ZERO)] {
                let clock = ManualClock::at(edge - Span::from_secs(10));
                let gate = Gate::with_clock(rule.parse().unwrap(), clock.clone());
                clock.set(edge);
                while !gate.check().is_deny() {}
                let most = gate.check_n(0).limit;
                let mut admitted = 0;
                for _ in 0..10_000 {
                    for now in [edge + late, edge - early] {
                        clock.set(now);
                        admitted += u64::from(!gate.check().is_deny());
                    }
                }
                if admitted > most {
                    brought.push((rule, amplitude, early, admitted, most));
                }
            }
        }
    }
    assert!(brought.is_empty(), "{brought:?}");
}

/// The name of every thread of this process that carries a name of ours.
fn threads_named(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let comm = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(|task| comm(task.ok()?)).filter(|comm| comm.trim() == name).count()
}

/// Gives way until it is so; a test that hangs here has failed.
fn until(mut is_so: impl FnMut() -> bool) -> bool {
    (0..20_000_000_u64).any(|_| {
        thread::yield_now();
        is_so()
    })
}

#[test]
fn a_cached_clock_ends_its_thread_when_the_last_clone_is_dropped() {
    let clocks: Vec<_> = (0..20).map(|_| CachedClock::every(Duration::from_secs(3_600))).collect();
    let clones: Vec<_> = clocks.clone();
    assert!(until(|| threads_named("tidegate-clock") >= 20));
    drop(clocks);
    assert!(threads_named("tidegate-clock") >= 20, "the clones still need them");
    drop(clones);
    // Though none of them would have woken up within the hour. Two other tests have such a clock.
    assert!(until(|| threads_named("tidegate-clock") <= 2), "the threads have ended");
}

#[test]
fn a_cached_clock_moves_and_never_goes_back_nor_ahead() {
    let (cached, system) = (CachedClock::every(Duration::from_micros(200)), SystemClock::new());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = cached.now();
                let end = last + Span::from_millis(20);
                while last < end {
                    let now = cached.now();
                    assert!(now >= last, "it went back");
                    assert!(now <= system.now(), "it is ahead of the machine's");
                    last = now;
                    thread::yield_now();
                }
            });
        }
    });
}

#[test]
fn a_limit_on_a_cached_clock_admits_exactly_the_burst_while_it_stands() {
    let gate = Gate::with_clock(
        "1/h burst 100".parse().unwrap(),
        CachedClock::every(Duration::from_secs(3_600)),
    );
    let admitted = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mine = (0..50).filter(|_| gate.check().is_allow()).count();
                admitted.fetch_add(mine, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(admitted.into_inner(), 100);
}

/// Counts its wake-ups; its reference count shows whether a limiter still holds it.
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn sleeps_that_are_dropped_leave_nothing_with_the_alarm() {
    let clock = SystemClock::new();
    let bell = Arc::new(Bell(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&bell));
    for round in 0..100 {
        let sleeps: Vec<_> = (0..1_000)
            .map(|n| {
                let mut sleep =
                    Box::pin(clock.sleep_until(clock.now() + Span::from_secs(3_600 + n)));
                assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                sleep
            })
            .collect();
        drop(sleeps);
        assert_eq!(Arc::strong_count(&bell), 2, "round {round}: here, and in the waker");
    }
    assert_eq!(bell.0.load(Ordering::Relaxed), 0);
    assert!(threads_named("tidegate-timer") <= 1, "one thread for all of them");
}

#[test]
fn sleeps_that_are_polled_again_are_kept_once_and_rung_when_due() {
    let clock = SystemClock::new();
    let bell = Arc::new(Bell(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&bell));
    let due = clock.now() + Span::from_millis(5);
    let mut sleep = pin!(clock.sleep_until(due));
    for _ in 0..100 {
        if sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            assert!(Arc::strong_count(&bell) <= 3, "once in the book");
        }
    }
    assert!(until(|| bell.0.load(Ordering::Relaxed) > 0 || clock.now() > due + Span::from_secs(5)));
    assert!(until(|| sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()));
    assert!(clock.now() >= due, "never early");
}

#[test]
fn a_sleep_longer_than_the_machine_can_say_is_not_a_panic() {
    let clock = SystemClock::new();
    let mut sleep = pin!(clock.sleep_until(Timestamp::MAX));
    assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// Each thread looks at the latest time that any has read, and then reads. The counters of two cores
/// differ by a little, which every algorithm rides out; it must be no more than that.
#[test]
fn the_machines_clock_hardly_goes_back_between_threads() {
    let (clock, latest) = (SystemClock::new(), AtomicU64::new(0));
    let worst_us = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..300_000 {
                    let seen = latest.load(Ordering::SeqCst);
                    let now = clock.now().as_micros();
                    worst_us.fetch_max(seen.saturating_sub(now), Ordering::Relaxed);
                    latest.fetch_max(now, Ordering::SeqCst);
                }
            });
        }
    });
    let worst_us = worst_us.into_inner();
    assert!(worst_us <= 1_000, "it went back by {worst_us} us");
}

/// Each reading of our clock lies between two of the system's. Over a second, the rounding to whole microseconds and the
/// time that the readings take are two parts in a million.
#[test]
#[expect(clippy::disallowed_methods, reason = "our clock is held against the system's")]
fn the_machines_clock_is_never_faster_than_the_systems_and_hardly_slower() {
    let clock = SystemClock::new();
    let start = Instant::now();
    let sight = || {
        let sight = || (start.elapsed(), clock.now(), start.elapsed());
        (0..64)
            .map(|_| sight())
            .min_by_key(|(before, _, after)| after.saturating_sub(*before))
            .unwrap()
    };
    let first = sight();
    assert!(until(|| start.elapsed() >= Duration::from_secs(1)));
    let last = sight();
    let ours = last.1.since(first.1).as_duration();
    let (longest, shortest) = (last.2.saturating_sub(first.0), last.0.saturating_sub(first.2));
    let rounding = Duration::from_micros(1);
    assert!(ours <= longest + rounding, "fast: {ours:?} in {longest:?}");
    assert!(ours + rounding + shortest / 100_000 >= shortest, "slow: {ours:?} in {shortest:?}");
}

#[test]
fn a_manual_clock_wakes_the_waiters_that_are_due_and_no_others() {
    let clock = ManualClock::new();
    let bells: Vec<_> = (0..10).map(|_| Arc::new(Bell(AtomicUsize::new(0)))).collect();
    let mut sleeps: Vec<_> = (1..=10)
        .map(|second| Box::pin(clock.sleep_until(clock.now() + Span::from_secs(second))))
        .collect();
    for (sleep, bell) in sleeps.iter_mut().zip(&bells) {
        let waker = Waker::from(Arc::clone(bell));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let rung = || bells.iter().filter(|bell| bell.0.load(Ordering::Relaxed) > 0).count();
    clock.advance(Span::from_micros(2_999_999));
    assert_eq!((rung(), clock.sleepers()), (2, 8));
    clock.advance(Span::from_micros(1));
    assert_eq!((rung(), clock.sleepers()), (3, 7));
    clock.set(Timestamp::EPOCH);
    assert_eq!((rung(), clock.sleepers()), (10, 0), "after a step back every waiter checks again");
    drop(sleeps);
    assert_eq!(clock.sleepers(), 0);
}
