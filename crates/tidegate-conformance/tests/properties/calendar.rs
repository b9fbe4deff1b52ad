//! The windows of UTC equal jiff's (T26), at random instants and around every start of a window.

use crate::check::check;
use crate::track::limit;
use proptest::prelude::*;
use tidegate_conformance::oracle::windows::calendar;
use tidegate_core::{CalendarUnit, Span, Timestamp, Window};

const UNITS: [(&str, CalendarUnit); 6] = [
    ("min", CalendarUnit::Minute),
    ("h", CalendarUnit::Hour),
    ("day", CalendarUnit::Day),
    ("week", CalendarUnit::Week),
    ("month", CalendarUnit::Month),
    ("year", CalendarUnit::Year),
];

/// 9998-01-01, because jiff must support the year after the last window.
const END_US: u64 = 253_339_228_800_000_000;

fn core_window(unit: &str, now: Timestamp) -> Window {
    let limit = limit(&format!("1/{unit} calendar"));
    limit.window(&limit.fresh(now), now).expect("a calendar has windows")
}

#[test]
fn utc_windows_equal_jiffs_from_1970_to_9997() {
    for (name, unit) in UNITS {
        check(&(0..END_US), |us| {
            let now = Timestamp::from_micros(us);
            let window = calendar(now, unit);
            prop_assert_eq!(core_window(name, now), window);
            let last = window.end - Span::from_micros(1);
            prop_assert_eq!(core_window(name, window.start), window, "at its start");
            prop_assert_eq!(core_window(name, last), window, "at its last microsecond");
            prop_assert_eq!(core_window(name, window.end), calendar(window.end, unit), "after it");
            Ok(())
        });
    }
}

#[test]
fn every_month_of_a_leap_cycle_equals_jiffs() {
    let mut now = Timestamp::EPOCH;
    let end = Timestamp::from_micros(400 * 366 * 86_400_000_000);
    while now < end {
        let window = core_window("month", now);
        assert_eq!(window, calendar(now, CalendarUnit::Month));
        now = window.end;
    }
}
