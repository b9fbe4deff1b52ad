//! Waits, cancellations, checks and time in any order: the admissions stay within the bound of the rule in every interval,
//! and in order (B1 under T21).

use crate::gate;
use proptest::prelude::*;
use tidegate::{Clock, Gate, ManualClock, Reservation, Span, Timestamp, Verdict};

#[derive(Clone, Copy, Debug)]
enum Event {
    Check(u64),
    Join(u64),
    GiveUp(usize),
    Refused(u64),
    Advance(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => (1_u64..3).prop_map(Event::Check),
        4 => (1_u64..3).prop_map(Event::Join),
        3 => (0_usize..6).prop_map(Event::GiveUp),
        1 => (0_u64..400_000).prop_map(Event::Refused),
        4 => (0_u64..700_000).prop_map(Event::Advance),
        1 => (0_u64..10).prop_map(Event::Advance),
    ];
    prop::collection::vec(event, 1..80)
}

/// The time and cost of each admission in order, and the remaining waiters.
struct Watch {
    gate: Gate<ManualClock>,
    clock: ManualClock,
    waiting: Vec<(Reservation<ManualClock>, u64)>,
    passed: Vec<(Timestamp, u64)>,
}

impl Watch {
    fn handle(&mut self, event: Event) {
        match event {
            Event::Check(cost) => match self.gate.check_n(cost).verdict {
                Verdict::Allow => self.passed.push((self.clock.now(), cost)),
                Verdict::Wait(span) => self.passed.push((self.clock.now() + span, cost)),
                Verdict::Deny(_) => {}
            },
            Event::Join(cost) => {
                if let Ok(reservation) = self.gate.request().cost(cost).reserve() {
                    self.waiting.push((reservation, cost));
                    self.let_pass(Span::ZERO);
                }
            }
            Event::GiveUp(waiter) if waiter < self.waiting.len() => {
                drop(self.waiting.remove(waiter));
            }
            Event::GiveUp(_) => {}
            Event::Refused(us) => {
                drop(self.gate.request().within(Span::from_micros(us).as_duration()).reserve());
            }
            Event::Advance(us) => {
                self.let_pass(Span::from_micros(us));
                self.clock.advance(Span::from_micros(us));
            }
        }
    }

    /// Admits the waiters that are due within `span`, each at its time; they must be the first in the queue.
    fn let_pass(&mut self, span: Span) {
        let is_due = |(one, _): &(Reservation<ManualClock>, u64)| one.wait() <= span;
        let due = self.waiting.iter().take_while(|one| is_due(one)).count();
        assert!(!self.waiting[due..].iter().any(is_due), "first come, first served");
        for (reservation, cost) in self.waiting.drain(..due) {
            self.passed.push((self.clock.now() + reservation.wait(), cost));
            reservation.commit();
        }
    }
}

/// Returns all admissions under the rule after `events`, sorted by time.
fn passed(rule: &str, events: &[Event]) -> Vec<(Timestamp, u64)> {
    let (gate, clock) = gate(rule);
    let mut watch = Watch { gate, clock, waiting: Vec::new(), passed: Vec::new() };
    for event in events {
        watch.handle(*event);
    }
    watch.let_pass(Span::MAX);
    watch.passed.sort();
    watch.passed
}

/// Returns the largest sum of costs in any interval that starts and ends with an admission.
fn each_interval(passed: &[(Timestamp, u64)], mut check: impl FnMut(Span, u64)) {
    for (first, (from, _)) in passed.iter().enumerate() {
        let mut sum = 0;
        for (to, cost) in &passed[first..] {
            sum += cost;
            check(to.since(*from), sum);
        }
    }
}

fn brought(span: Span, count: u64, period: Span) -> u64 {
    let whole = u128::from(span.as_micros()) * u128::from(count) / u128::from(period.as_micros());
    u64::try_from(whole).unwrap()
}

const SECOND: Span = Span::from_secs(1);

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(800) })]

    // B1.
    #[test]
    fn buckets_admit_the_burst_and_what_refills(events in events()) {
        for (rule, burst, count, period) in [
            ("3/s burst 2", 2, 3, SECOND),
            ("7/2s burst 5", 5, 7, Span::from_secs(2)),
            ("3/s leaky capacity 4", 4, 3, SECOND),
            ("11/s start empty", 11, 11, SECOND),
        ] {
            let passed = passed(rule, &events);
            each_interval(&passed, |span, sum| {
                let most = burst + brought(span, count, period);
                assert!(sum <= most, "{rule}: {sum} in {span}, not {most}: {passed:?}");
            });
        }
    }

    // B1.
    #[test]
    fn a_paced_queue_admits_one_and_what_refills(events in events()) {
        let single = |event: &Event| match event {
            Event::Check(_) => Event::Check(1),
            Event::Join(_) => Event::Join(1),
            other => *other,
        };
        let events: Vec<Event> = events.iter().map(single).collect();
        for (rule, count) in [("3/s paced", 3), ("7/s queue capacity 9", 7)] {
            let passed = passed(rule, &events);
            each_interval(&passed, |span, sum| {
                // Waits are whole microseconds, rounded up, so two turns may be one microsecond closer.
                let slack = if rule.contains("queue") { Span::from_micros(1) } else { Span::ZERO };
                let most = 1 + brought(span + slack, count, SECOND);
                assert!(sum <= most, "{rule}: {sum} in {span}, not {most}: {passed:?}");
            });
        }
    }

    // B1.
    #[test]
    fn windows_admit_at_most_their_count(events in events()) {
        let passed_log = passed("5/s sliding-log", &events);
        each_interval(&passed_log, |span, sum| {
            assert!(span >= SECOND || sum <= 5, "{sum} in {span}: {passed_log:?}");
        });
        let passed = passed("5/s fixed", &events);
        for (at, _) in &passed {
            let second = at.as_micros() / 1_000_000;
            let same = passed.iter().filter(|(other, _)| other.as_micros() / 1_000_000 == second);
            let sum: u64 = same.map(|(_, cost)| cost).sum();
            assert!(sum <= 5, "{sum} in second {second}: {passed:?}");
        }
    }
}
