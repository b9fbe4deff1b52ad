//! Shedding by priority (A14): what matters least goes first, gradually, without flapping; what is in
//! flight is bounded and comes back.

use crate::tree::Tree;
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use tidegate::load::{Cause, Level, Priority, Shed, Shedder, Signal, Watermarks};
use tidegate::{ManualClock, Span};

/// A shedder by pressure on the processor alone, which the test sets.
struct Scene {
    tree: Tree,
    clock: ManualClock,
    shedder: Shedder<ManualClock>,
}

impl Scene {
    fn new() -> Self {
        let (tree, clock) = (Tree::machine(), ManualClock::new());
        let builder = Shedder::builder().watch(Signal::CpuPressure, Watermarks::percent(30..=50));
        let shedder = builder.root(tree.path()).build_with_clock(clock.clone());
        Self { tree, clock, shedder }
    }

    /// Lets `seconds` pass at this pressure, with a request of each priority every 100 ms; tells how many of
    /// each were shed.
    fn pass(&self, seconds: u64, percent: &str) -> [u64; 4] {
        self.tree.pressure("proc/pressure/cpu", percent);
        let mut shed = [0; 4];
        for _ in 0..seconds * 10 {
            self.clock.advance(Span::from_millis(100));
            for (count, priority) in shed.iter_mut().zip(Priority::ALL) {
                *count += u64::from(self.shedder.try_enter(priority).is_err());
            }
        }
        shed
    }
}

#[test]
fn under_pressure_classes_go_one_after_the_other_and_critical_traffic_stays() {
    let scene = Scene::new();
    assert_eq!(scene.pass(10, "49.99"), [0; 4]);
    let first = scene.pass(5, "100.00");
    assert!((15..=30).contains(&first[0]) && first[1..] == [0; 3], "{first:?}");
    let second = scene.pass(5, "100.00");
    assert!(second[0] >= 45 && (15..=30).contains(&second[1]) && second[2] == 0, "{second:?}");
    let third = scene.pass(6, "100.00");
    assert!(third[..2].iter().all(|count| *count >= 55) && third[2] >= 15, "{third:?}");
    assert_eq!(scene.pass(600, "100.00"), [6_000, 6_000, 6_000, 0]);
}

#[test]
fn between_the_marks_it_stays_as_it_is() {
    let scene = Scene::new();
    scene.pass(7, "100.00");
    let level = scene.shedder.level();
    assert!(level > Level::default());
    for percent in ["30.00", "49.00", "31.50", "50.00"] {
        scene.pass(60, percent);
        assert_eq!(scene.shedder.level(), level, "{percent}");
    }
}

#[test]
fn it_comes_back_more_slowly_than_it_went() {
    let scene = Scene::new();
    scene.pass(10, "100.00");
    let level = scene.shedder.level().as_millionths();
    assert!((1_900_000..=2_000_000).contains(&level), "{level}");
    scene.pass(10, "0.00");
    let later = scene.shedder.level().as_millionths();
    assert!((900_000..=1_050_000).contains(&later), "{later}");
    scene.pass(12, "0.00");
    assert_eq!(scene.shedder.level(), Level::default());
}

#[test]
fn the_files_are_read_no_more_often_than_told() {
    let scene = Scene::new();
    let _ = scene.shedder.try_enter(Priority::Normal);
    scene.tree.pressure("proc/pressure/cpu", "77.00");
    let seen = || scene.shedder.readings()[0].value.clone().unwrap();
    scene.clock.advance(Span::from_micros(199_999));
    let _ = scene.shedder.try_enter(Priority::Normal);
    assert_eq!(seen(), 0);
    scene.clock.advance(Span::from_micros(1));
    let _ = scene.shedder.try_enter(Priority::Normal);
    assert_eq!(seen(), 770);
}

#[test]
fn a_long_time_without_a_look_is_not_taken_for_a_long_time_of_load() {
    let scene = Scene::new();
    scene.pass(1, "0.00");
    scene.tree.pressure("proc/pressure/cpu", "100.00");
    scene.clock.advance(Span::from_secs(3_600));
    scene.shedder.sample();
    assert_eq!(scene.shedder.level().as_millionths(), 200_000, "a second's worth");
}

#[test]
fn one_signal_that_pushes_is_enough_and_all_must_agree_to_let_go() {
    let (tree, clock) = (Tree::machine(), ManualClock::new());
    let shedder = Shedder::builder().root(tree.path()).build_with_clock(clock.clone());
    let pass = |seconds: u64| {
        for _ in 0..seconds * 10 {
            clock.advance(Span::from_millis(100));
            shedder.sample();
        }
        shedder.level().as_millionths()
    };
    tree.pressure("proc/pressure/memory", "40.00");
    let high = pass(5);
    assert!(high > 900_000, "{high}");
    tree.pressure("proc/pressure/memory", "10.00");
    assert_eq!(pass(60), high, "between its marks, while the others have nothing to do");
    tree.pressure("proc/pressure/memory", "0.00");
    assert_eq!(pass(20), 0);
}

#[test]
fn what_is_in_flight_keeps_room_for_what_matters_more() {
    let shedder = Shedder::builder().watch_nothing().in_flight_max(100).build();
    let mut held = Vec::new();
    let mut fill = |priority| {
        while let Ok(permit) = shedder.try_enter(priority) {
            held.push(permit);
        }
        shedder.in_flight()
    };
    let filled = Priority::ALL.map(&mut fill);
    assert_eq!(filled, [50, 65, 80, 100]);
    let refused = shedder.try_enter(Priority::Critical).unwrap_err();
    assert_eq!((refused.cause(), refused.priority()), (Cause::InFlight, Priority::Critical));
    held.clear();
    assert_eq!(shedder.in_flight(), 0);
}

#[test]
fn a_single_place_is_for_everybody() {
    let shedder = Shedder::builder().watch_nothing().in_flight_max(1).build();
    for priority in Priority::ALL {
        assert!(shedder.try_enter(priority).is_ok());
    }
    let none =
        Shedder::builder().watch_nothing().in_flight_max(9).share(Priority::Batch, 0).build();
    assert!(none.try_enter(Priority::Batch).is_err());
}

// T13.
#[test]
fn every_permit_is_released_by_threads_that_panic() {
    let shedder = Shedder::builder().watch_nothing().in_flight_max(3).build();
    thread::scope(|scope| {
        for thread in 0..8_usize {
            let shedder = &shedder;
            scope.spawn(move || {
                for round in 0..125_000 {
                    let work = || -> Result<(), Shed> {
                        let _permit = shedder.try_enter(Priority::ALL[(thread + round) % 4])?;
                        assert!(shedder.in_flight() <= 3);
                        if round % 3 == 0 {
                            std::panic::resume_unwind(Box::new(()));
                        }
                        Ok(())
                    };
                    let _ = catch_unwind(AssertUnwindSafe(work));
                }
            });
        }
    });
    assert_eq!(shedder.in_flight(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    /// If a request is shed, no request of a lower priority is admitted in its place.
    #[test]
    fn no_request_is_shed_before_all_lower_priorities_are(
        shares in (0_u64..=100, 0_u64..=100, 0_u64..=100),
        max in 0_u64..30,
        taken in prop::collection::vec(0..4_usize, 0..40),
        seconds in 0_u64..20,
    ) {
        let (tree, clock) = (Tree::machine(), ManualClock::new());
        tree.pressure("proc/pressure/cpu", "100.00");
        let shedder = Shedder::builder()
            .watch(Signal::CpuPressure, Signal::CpuPressure.marks())
            .root(tree.path())
            .in_flight_max(max)
            .share(Priority::Batch, shares.0)
            .share(Priority::Sheddable, shares.1)
            .share(Priority::Normal, shares.2)
            .build_with_clock(clock.clone());
        for _ in 0..=seconds {
            shedder.sample();
            clock.advance(Span::from_secs(1));
        }
        let mut held = Vec::new();
        for which in taken {
            let priority = Priority::ALL[which];
            match shedder.try_enter(priority) {
                Ok(permit) => held.push(permit),
                Err(shed) => {
                    prop_assert!(priority != Priority::Critical || shed.cause() == Cause::InFlight);
                    for below in Priority::ALL.into_iter().filter(|below| *below < priority) {
                        prop_assert!(shedder.try_enter(below).is_err(), "{below} instead of {priority}");
                    }
                }
            }
        }
    }

    /// Of any number of requests the share is shed, to within one, and evenly.
    #[test]
    fn a_part_is_shed_without_chance(millionths in 0_u32..=3_000_000, first in any::<u64>(), count in 1_u64..500) {
        let level = Level::from_millionths(millionths);
        for priority in Priority::ALL {
            let numbers = (0..count).map(|number| (first / 2).wrapping_add(number) % 1_000_000);
            let contiguous: Vec<u64> = numbers.collect();
            prop_assume!(contiguous.windows(2).all(|pair| pair[0] + 1 == pair[1]));
            let shed = contiguous.iter().filter(|number| level.sheds(priority, **number)).count();
            let exact = u64::from(level.share(priority)) * count / 1_000_000;
            prop_assert!(u64::try_from(shed).unwrap().abs_diff(exact) <= 1);
        }
    }
}
