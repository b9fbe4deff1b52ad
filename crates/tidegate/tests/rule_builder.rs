//! A rule that is built from numbers is the rule that its text describes.

use proptest::prelude::*;
use std::time::Duration;
use tidegate::rule::{CalendarUnit, RuleBuilder};
use tidegate::{Rule, RuleError};

fn rule(text: &str) -> Rule {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn is(built: Result<Rule, RuleError>, text: &str) {
    assert_eq!(built.unwrap_or_else(|error| panic!("{text}: {error}")), rule(text));
}

/// `built` is what both its own text and the canonical text parse to.
fn round_trips<A>(builder: &RuleBuilder<A>) -> Result<(), TestCaseError> {
    match builder.build() {
        Ok(built) => {
            prop_assert_eq!(&built, &rule(&builder.to_string()));
            prop_assert_eq!(&built, &rule(&built.to_string()));
        }
        Err(error) => {
            prop_assert_eq!(builder.to_string().parse::<Rule>(), Err(error));
        }
    }
    Ok(())
}

#[test]
fn every_algorithm_can_be_built_with_every_option() {
    let (second, ms) = (Duration::from_secs(1), Duration::from_millis);
    is(Rule::per_second(100).build(), "100/s");
    is(Rule::per_second(100).burst(20).build(), "100/s burst 20");
    is(Rule::per_minute(7).start_empty().burst(2).build(), "7/min burst 2 start empty");
    is(Rule::per_hour(7).burst(2).start_empty().build(), "7/h burst 2 start empty");
    is(Rule::per_day(5).paced().build(), "5/day paced");
    is(Rule::per(30, 10 * second).fixed().build(), "30/10s fixed");
    is(Rule::per_minute(1).fixed().from_first_request().build(), "1/min fixed from first");
    is(
        Rule::per_hour(1).fixed().from_instant("2024-01-01T00:00:30+08:00").build(),
        "1/h fixed from 2024-01-01T00:00:30+08:00",
    );
    is(Rule::per_minute(5).sliding_log().build(), "5/min sliding-log");
    is(Rule::per_minute(5).sliding().build(), "5/min sliding");
    is(Rule::per_second(5).leaky().capacity(9).build(), "5/s leaky capacity 9");
    is(Rule::per_second(5).queue().build(), "5/s queue");
    is(
        Rule::per_second(5).queue().max_wait(ms(1)).capacity(9).build(),
        "5/s queue capacity 9 wait 1ms",
    );
    is(Rule::per_second(5).smooth().burst(9).build(), "5/s smooth burst 9");
    is(Rule::per_second(5).warmup(second).cold_factor(4).build(), "5/s warmup 1s cold 4");
    is(Rule::concurrency(5).build(), "concurrency 5");
    is(
        Rule::concurrency(5).lease(second).max_wait(ms(5)).build(),
        "concurrency 5 wait 5ms lease 1s",
    );
    is(Rule::nginx_per_second(10).burst(20).nodelay().build(), "10r/s burst=20 nodelay");
    is(Rule::nginx_per_minute(10).burst(20).nodelay().delay(3).build(), "10r/m burst=20 delay=3");
    is(Rule::per_second(0).build(), "0/s");
    let units = [
        (CalendarUnit::Minute, "min"),
        (CalendarUnit::Hour, "h"),
        (CalendarUnit::Day, "day"),
        (CalendarUnit::Week, "week"),
        (CalendarUnit::Month, "month"),
        (CalendarUnit::Year, "year"),
    ];
    for (unit, name) in units {
        is(Rule::per_calendar(1, unit).build(), &format!("1/{name} calendar"));
    }
    #[cfg(feature = "zones")]
    is(
        Rule::per_calendar(1, CalendarUnit::Day).zone("Asia/Shanghai").build(),
        "1/day calendar in Asia/Shanghai",
    );
}

#[test]
fn a_number_out_of_range_is_an_error_that_shows_the_rule() {
    let error = Rule::per_second(10).burst(0).build().unwrap_err();
    assert_eq!(error.to_string(), "the burst must be at least 1\n  10/s burst 0\n             ^");
    assert!(Rule::per(1, Duration::ZERO).build().is_err());
    assert!(Rule::per(1, Duration::MAX).build().is_err());
    assert!(Rule::concurrency(0).build().is_err());
    assert!(Rule::per_second(0).burst(5).build().is_err(), "a rate of 0 has no burst");
    assert!(Rule::per_calendar(1, CalendarUnit::Day).zone("Mars/Olympus").build().is_err());
    assert!(Rule::per_hour(1).fixed().from_instant("tomorrow").build().is_err());
}

#[test]
fn rounding_is_never_in_the_callers_favour() {
    let beyond = Duration::from_nanos(1_001);
    is(Rule::per(1, beyond).build(), "1/2us");
    is(Rule::per_second(5).queue().max_wait(beyond).build(), "5/s queue wait 1us");
    is(Rule::concurrency(5).lease(beyond).build(), "concurrency 5 lease 2us");
}

proptest! {
    #[test]
    fn a_built_rule_is_what_its_text_says(
        count: u64, other: u64, third in 0..9_u64, period_ns: u64, time_ns: u64,
    ) {
        let (period, time) = (Duration::from_nanos(period_ns), Duration::from_nanos(time_ns));
        let rate = || Rule::per(count, period);
        round_trips(&rate())?;
        round_trips(&rate().burst(other))?;
        round_trips(&rate().burst(third).start_empty())?;
        round_trips(&rate().paced())?;
        round_trips(&rate().fixed().from_first_request())?;
        round_trips(&rate().sliding())?;
        round_trips(&rate().sliding_log())?;
        round_trips(&rate().leaky().capacity(other))?;
        round_trips(&rate().queue().capacity(other).max_wait(time))?;
        round_trips(&rate().smooth().burst(third))?;
        round_trips(&rate().warmup(time).cold_factor(third))?;
        round_trips(&Rule::per_calendar(count, CalendarUnit::Week))?;
        round_trips(&Rule::concurrency(count).max_wait(time).lease(period))?;
        round_trips(&Rule::nginx_per_minute(third).burst(other).delay(third))?;
    }
}
