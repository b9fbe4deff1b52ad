//! `CL.THROTTLE` in process (P6): redis-cell's own tables, and a model of it that shares no code with ours.

use proptest::prelude::*;
use tidegate::snapshot::Snapshot;
use tidegate::throttle::{Throttle, Throttles, ZeroRate};
use tidegate::{Limiter, ManualClock, Span, Timestamp};
use tidegate_testbed::{OWN_TABLE, RedisCell};

type Numbers = (i64, i64, i64, i64);

struct Cell {
    clock: ManualClock,
    throttles: Throttles<ManualClock>,
}

impl Cell {
    fn new() -> Self {
        let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
        Self { throttles: Throttles::with_clock(clock.clone()), clock }
    }

    fn request(&self, (max_burst, count, period, quantity): Numbers) -> Result<[i64; 5], ZeroRate> {
        let throttle = Throttle::new(max_burst, count, period, quantity)?;
        Ok(self.throttles.check("k", &throttle).reply())
    }

    fn say(&self, numbers: Numbers) -> [i64; 5] {
        self.request(numbers).expect("not a rate of zero")
    }
}

const MS: fn(u64) -> Span = Span::from_millis;

/// One a year, two hundred at once: redis-cell can keep 235 years of that, and we 146.
const YEARLY: Numbers = (199, 1, 31_536_000, 1);

#[test]
fn more_than_146_years_are_denied_with_the_time_to_wait() {
    let cell = Cell::new();
    let year_s = 31_536_000;
    for taken in 1..=146 {
        assert_eq!(cell.say(YEARLY), [0, 200, 200 - taken, -1, taken * year_s], "{taken}");
    }
    let [limited, limit, remaining, retry_s, reset_s] = cell.say(YEARLY);
    assert_eq!((limited, limit, remaining, reset_s), (1, 200, 0, 146 * year_s));
    assert!((1..year_s).contains(&retry_s), "{retry_s}");
    assert_eq!(cell.say((199, 1, 31_536_000, 0)), [0, 200, 54, -1, 146 * year_s], "a look is none");
    let retry_s = u64::try_from(retry_s).unwrap();
    cell.clock.advance(Span::from_secs(retry_s - 2));
    assert_eq!(cell.say(YEARLY)[0], 1, "not before");
    cell.clock.advance(Span::from_secs(2));
    assert_eq!(cell.say(YEARLY)[..2], [0, 200], "then it passes");
    assert_eq!(cell.say((i64::MAX - 1, 1, 31_536_000, 147))[..2], [1, i64::MAX]);
    assert_eq!(Cell::new().say((199, 1, 31_536_000, 147))[3], -1, "more than ever can be owed");
}

#[test]
fn numbers_beyond_64_bits_stay_at_the_largest() {
    let largest = i64::MAX;
    // A burst that has no successor, an interval that has no multiple.
    assert_eq!(Cell::new().say((largest, 1, 1, 1))[..2], [0, largest]);
    assert_eq!(
        Cell::new().say((1, 1, largest, 1))[..2],
        [1, 2],
        "not even one interval can be owed"
    );
    assert_eq!(Cell::new().say((largest, 1, largest, largest))[0], 1);
    assert_eq!(Cell::new().say((15, 30, 60, largest))[..2], [1, 16]);
    assert_eq!(
        Cell::new().say((15, 30, 60, i64::MIN)),
        [0, 16, 16, -1, 0],
        "given back, and nothing was owed"
    );
}

#[test]
fn a_look_at_a_new_key_leaves_nothing() {
    let cell = Cell::new();
    assert_eq!(cell.say((15, 30, 60, 0)), [0, 16, 16, -1, 0]);
    assert_eq!(cell.throttles.limiter().stats().keys, 0);
}

#[test]
fn it_rate_limits_as_redis_cells_own_table_says() {
    let start = Timestamp::from_micros(1_700_000_000_000_000);
    let cell = Cell::new();
    for (ms, quantity, five) in OWN_TABLE {
        cell.clock.set(start + MS(ms));
        assert_eq!(cell.say((4, 1, 1, quantity)), five, "{quantity} at {ms} ms");
    }
}

#[test]
fn the_readme_and_the_end_to_end_cases_of_redis_cell() {
    assert_eq!(Cell::new().say((15, 30, 60, 1)), [0, 16, 15, -1, 2]);
    let cell = Cell::new();
    assert_eq!(cell.say((0, 1, 2, 1)), [0, 1, 0, -1, 2]);
    assert_eq!(cell.say((0, 1, 2, 1)), [1, 1, 0, 2, 2]);
    cell.clock.advance(MS(2_000));
    assert_eq!(cell.say((0, 1, 2, 1)), [0, 1, 0, -1, 2]);
}

#[test]
fn a_refund_gives_back_what_was_taken_and_no_more() {
    let cell = Cell::new();
    assert_eq!(cell.say((4, 1, 10, 3)), [0, 5, 2, -1, 30]);
    assert_eq!(cell.say((4, 1, 10, -1)), [0, 5, 3, -1, 20]);
    assert_eq!(cell.say((4, 1, 10, -2)), [0, 5, 5, -1, 0]);
    assert_eq!(cell.say((4, 1, 10, -9)), [0, 5, 5, -1, 0], "redis-cell leaves a key for ever");
    assert_eq!(cell.say((4, 1, 10, 5)), [0, 5, 0, -1, 50], "not six");
    assert_eq!(cell.throttles.limiter().keys(), 1);
}

#[test]
fn what_can_never_pass_says_so() {
    let cell = Cell::new();
    assert_eq!(cell.say((4, 1, 1, 2)), [0, 5, 3, -1, 2]);
    assert_eq!(cell.say((4, 1, 1, 6)), [1, 5, 3, -1, 2]);
    assert_eq!(cell.say((4, 1, 1, 5)), [1, 5, 3, 2, 2]);
    assert_eq!(cell.say((4, 1, 1, 3)), [0, 5, 0, -1, 5]);
    assert_eq!(Cell::new().say((-1, 1, 1, 1)), [1, 0, 0, -1, 0]);
    assert_eq!(Cell::new().say((-5, 1, 1, 1)), [1, -4, 0, -1, 0]);
}

#[test]
fn a_denied_caller_is_never_told_to_come_back_at_once() {
    let cell = Cell::new();
    assert_eq!(cell.say((0, 2, 1, 1)), [0, 1, 0, -1, 1]);
    assert_eq!(cell.say((0, 2, 1, 1)), [1, 1, 0, 1, 1]);
    cell.clock.advance(Span::from_micros(499_600));
    assert_eq!(cell.say((0, 2, 1, 1)), [1, 1, 0, 1, 0], "redis-cell says 0");
    cell.clock.advance(Span::from_micros(400));
    assert_eq!(cell.say((0, 2, 1, 1)), [0, 1, 0, -1, 1]);
}

#[test]
fn no_more_remains_than_the_limit() {
    assert_eq!(Cell::new().say((6000, 6000, 1, 1)), [0, 6001, 6000, -1, 0], "redis-cell: 6024");
    assert_eq!(Cell::new().say((9, 5_000_000, 1, 1)), [0, 10, 9, -1, 0], "redis-cell: 2^63 - 1");
}

#[test]
fn what_is_within_the_limit_is_redis_cells_number() {
    let cell = Cell::new();
    assert_eq!(cell.say((6000, 6000, 1, 22)), [0, 6001, 5979, -1, 1], "redis-cell: 6002");
    assert_eq!(cell.say((6000, 6000, 1, 1)), [0, 6001, 6001, -1, 1], "5978 would pass");
    assert_eq!(cell.say((6000, 6000, 1, 2978)), [0, 6001, 3012, -1, 1], "3000 would pass");
    let cell = Cell::new();
    assert_eq!(cell.say((9, 5_000_000, 1, 5)), [0, 10, 5, -1, 0], "redis-cell: 2^63 - 1");
    assert_eq!(cell.say((9, 5_000_000, 1, 1)), [0, 10, 0, -1, 0], "no whole microsecond is left");
}

#[test]
fn a_rate_of_zero_is_refused() {
    for (count, period) in [(0, 1), (1, 0), (0, 0), (2_000_000_000, 1)] {
        assert_eq!(Cell::new().request((1, count, period, 1)), Err(ZeroRate));
    }
}

#[test]
fn a_debt_outlives_a_change_of_rate() {
    let cell = Cell::new();
    assert_eq!(cell.say((15, 10, 20, 4)), [0, 16, 12, -1, 8]);
    assert_eq!(cell.say((15, 1000, 20, 1)), [1, 16, 0, 8, 8]);
    assert_eq!(cell.say((15, 1000, 20, 0)), [1, 16, 0, 8, 8], "a look says so too");
}

#[test]
fn years_are_no_trouble() {
    let year = 31_536_000;
    let cell = Cell::new();
    assert_eq!(cell.say((0, 1, year, 1)), [0, 1, 0, -1, year]);
    assert_eq!(cell.say((0, 1, year, 1)), [1, 1, 0, year, year]);
    assert_eq!(Cell::new().say((99, 1, year, 1)), [0, 100, 99, -1, year]);
    for extreme in [i64::MAX, i64::MIN, i64::MIN + 1] {
        let numbers =
            [(extreme, 1, 1, 1), (1, extreme, 1, 1), (1, 1, extreme, 1), (1, 1, 1, extreme)];
        for numbers in numbers {
            let _ = Cell::new().request(numbers);
        }
    }
}

#[test]
fn debts_survive_in_a_snapshot() {
    let cell = Cell::new();
    cell.say((4, 1, 1, 5));
    let mut bytes = Vec::new();
    Snapshot::write(&mut bytes, [("cells", cell.throttles.limiter())]).unwrap();
    cell.clock.advance(MS(2_000));
    let builder = Limiter::builder(Throttles::rule());
    let restored = Snapshot::read(&bytes).unwrap();
    let limiter = restored.restore_with_clock("cells", builder, cell.clock.clone());
    let throttles = Throttles::over(limiter).unwrap();
    let throttle = Throttle::new(4, 1, 1, 3).unwrap();
    assert_eq!(throttles.check("k", &throttle).reply(), [1, 5, 2, 1, 3]);
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let burst = prop_oneof![8 => 0..20_i64, 2 => 0..100_000_i64, 1 => -5..0_i64];
    let count = prop_oneof![8 => 1..100_i64, 2 => 1..10_000_000_i64, 1 => -50..50_i64];
    let period = prop_oneof![8 => 1..100_i64, 1 => 1..3_000_000_i64, 1 => -50..50_i64];
    let quantity = prop_oneof![8 => 0..5_i64, 2 => 0..200_i64, 2 => -5..0_i64];
    (burst, count, period, quantity)
}

/// Some numbers, asked again and again, and now and then others.
fn sequence() -> impl Strategy<Value = Vec<(u64, Numbers)>> {
    let pause = prop_oneof![4 => Just(0_u64), 4 => 0..2_000_000_u64, 1 => 0..100_000_000_u64];
    (
        proptest::collection::vec(numbers(), 1..3),
        proptest::collection::vec((pause, 0..9_usize, -3..6_i64), 1..25),
    )
        .prop_map(|(numbers, steps)| {
            let step = |(pause, which, quantity): (u64, usize, i64)| {
                let (burst, count, period, first) = numbers[which % numbers.len()];
                let quantity = if which < 6 { first } else { quantity };
                (pause, (burst, count, period, quantity))
            };
            steps.into_iter().map(step).collect()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100_000))]

    #[test]
    fn we_answer_as_the_model_does(steps in sequence()) {
        let cell = Cell::new();
        let batched = Cell::new();
        let mut batch = batched.throttles.batch();
        let mut model = RedisCell::default();
        let mut now = 1_700_000_000_000_000_000_i128;
        for (pause, numbers) in steps {
            now += i128::from(pause) * 1000;
            cell.clock.advance(Span::from_micros(pause));
            batched.clock.advance(Span::from_micros(pause));
            let said = cell.request(numbers);
            let (burst, count, period, quantity) = numbers;
            let expected = model.throttle(now, b"k", [burst, count, period, quantity]);
            prop_assert_eq!(said.ok(), expected, "{:?}", numbers);
            if let Ok(throttle) = Throttle::new(numbers.0, numbers.1, numbers.2, numbers.3) {
                batch.push("k", throttle);
                let mut in_batch = None;
                batch.decide(|throttled| in_batch = Some(throttled.reply()));
                prop_assert_eq!(in_batch, said.ok());
            }
        }
    }
}
