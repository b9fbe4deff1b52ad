//! Calendar windows in named zones (T26, A2, S3), against a walk through whole years that watches
//! where the date on the wall changes for the first time.
#![cfg(feature = "zones")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use jiff::civil::Date;
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use tidegate::rule::{RuleErrorKind, Window};
use tidegate::{Clock, Limiter, ManualClock, Span, Timestamp};

/// Zones with something about them, and years in which it happens. Their clocks and dates change at
/// whole quarters of an hour, so that a walk by quarters sees every change of date.
const ZONES: [(&str, [i16; 2]); 14] = [
    ("Asia/Shanghai", [1991, 2024]),    // the last summer time, and none
    ("America/St_Johns", [2009, 2011]), // goes back at 00:01: the date falls back, once a month
    ("Europe/Berlin", [2023, 2024]),    // 23 and 25 hours
    ("America/New_York", [2007, 2024]), // the rules changed in 2007
    ("Australia/Lord_Howe", [2023, 2024]), // by half an hour
    ("Pacific/Apia", [2011, 2012]),     // no 30 December 2011
    ("Asia/Kathmandu", [1986, 2024]),   // moved by a quarter of an hour at the new year of 1986
    ("America/Sao_Paulo", [2017, 2018]), // summer begins at midnight: there is no 00:00
    ("America/Havana", [2023, 2024]),   // goes back from 01:00 to 00:00
    ("Africa/Cairo", [2023, 2024]),     // goes back from 24:00 to 23:00
    ("Asia/Beirut", [2022, 2024]),      // the same, in its own weeks
    ("Pacific/Kwajalein", [1993, 1994]), // no 21 August 1993
    ("Antarctica/Casey", [2010, 2020]), // three hours back, in the night
    ("Africa/Casablanca", [2023, 2024]), // back in Ramadan, and forward again
];

const QUARTER: Span = Span::from_secs(900);
const HOUR: u64 = 3_600_000_000;

fn limiter(rule: &str, at: Timestamp) -> (Limiter<ManualClock>, ManualClock) {
    let clock = ManualClock::at(at);
    (Limiter::with_clock(rule.parse().unwrap(), clock.clone()), clock)
}

fn window(limiter: &Limiter<ManualClock>, clock: &ManualClock, at: Timestamp) -> Window {
    clock.set(at);
    limiter.window("alice").unwrap()
}

fn midnight_utc(date: Date) -> Timestamp {
    let timestamp = date.to_zoned(TimeZone::UTC).unwrap().timestamp();
    Timestamp::from_micros(u64::try_from(timestamp.as_microsecond()).unwrap())
}

fn date_at(zone: &TimeZone, at: Timestamp) -> Date {
    let us = i64::try_from(at.as_micros()).unwrap();
    zone.to_datetime(jiff::Timestamp::from_microsecond(us).unwrap()).date()
}

/// Where each date is first seen on the wall, from a few days before the year to a few days after.
fn first_instants(zone: &TimeZone, year: i16) -> Vec<(Timestamp, Date)> {
    let mut at = midnight_utc(Date::constant(year - 1, 12, 26));
    let end = midnight_utc(Date::constant(year + 1, 1, 8));
    let mut latest = date_at(zone, at);
    let mut starts = Vec::new();
    while at < end {
        let date = date_at(zone, at);
        if date > latest {
            latest = date;
            starts.push((at, date));
        }
        at = at + QUARTER;
    }
    starts
}

/// Which unit of its kind a date belongs to, as a number that grows by one from unit to unit.
fn unit_of(unit: &str, date: Date) -> i32 {
    let days = || (date - Date::constant(1970, 1, 5)).get_days();
    match unit {
        "day" => days(),
        "week" => days().div_euclid(7),
        "month" => i32::from(date.year()) * 12 + i32::from(date.month()),
        _ => i32::from(date.year()),
    }
}

/// The windows of a unit: from where one is first seen to where the next one is.
fn windows(unit: &str, starts: &[(Timestamp, Date)]) -> Vec<Window> {
    let mut begins: Vec<Timestamp> = Vec::new();
    let mut last = None;
    for (at, date) in starts {
        let this = unit_of(unit, *date);
        if last.is_some_and(|last| last != this) {
            begins.push(*at);
        }
        last = Some(this);
    }
    begins.windows(2).map(|pair| Window { start: pair[0], end: pair[1] }).collect()
}

fn each_zone() -> impl Iterator<Item = (&'static str, TimeZone, i16)> {
    ZONES
        .into_iter()
        .flat_map(|(name, years)| years.map(|year| (name, TimeZone::get(name).unwrap(), year)))
}

// T26.
#[test]
fn a_day_begins_where_its_date_first_appears() {
    for (name, zone, year) in each_zone() {
        let starts = first_instants(&zone, year);
        for unit in ["day", "week", "month", "year"] {
            let (limiter, clock) =
                limiter(&format!("1/{unit} calendar in {name}"), Timestamp::EPOCH);
            for expected in windows(unit, &starts) {
                let Window { start, end } = expected;
                let us = Span::from_micros(1);
                let middle = start + Span::from_micros(end.since(start).as_micros() / 2);
                for at in [start, start + us, middle, end - us] {
                    let found = window(&limiter, &clock, at);
                    assert_eq!(found, expected, "{unit} of {name} at {at:?}");
                }
            }
        }
    }
}

// T26.
/// At every quarter of an hour, asked in an order that never lets the last window be asked twice.
#[test]
fn windows_contain_now_and_touch_at_every_quarter_of_every_year() {
    for (name, _, year) in each_zone() {
        let (limiter, clock) = limiter(&format!("1/day calendar in {name}"), Timestamp::EPOCH);
        let mut at = midnight_utc(Date::constant(year, 1, 1));
        let end = midnight_utc(Date::constant(year + 1, 1, 2));
        while at < end {
            let now = window(&limiter, &clock, at);
            assert!(now.start <= at && at < now.end, "{name} at {at:?}: {now:?}");
            assert_eq!(window(&limiter, &clock, now.end).start, now.end, "{name} at {at:?}");
            let before = window(&limiter, &clock, now.start - Span::from_micros(1));
            assert_eq!(before.end, now.start, "{name} at {at:?}");
            at = at + QUARTER;
        }
    }
}

/// How many days of the year have how many quarters of an hour, other than 24 hours.
fn odd_days(zone: &str, year: i16) -> BTreeMap<u64, usize> {
    let starts = first_instants(&TimeZone::get(zone).unwrap(), year);
    let mut lengths = BTreeMap::new();
    for Window { start, end } in windows("day", &starts) {
        let (limiter, clock) = limiter(&format!("1/day calendar in {zone}"), start);
        let found = window(&limiter, &clock, start);
        assert_eq!(found.end, end);
        *lengths.entry(found.end.since(found.start).as_micros() / (HOUR / 4)).or_default() += 1;
    }
    lengths.remove(&96);
    lengths
}

// T26.
#[test]
fn one_day_has_23_hours_and_one_has_25() {
    for (zone, year) in
        [("Europe/Berlin", 2024), ("America/New_York", 2024), ("America/St_Johns", 2011)]
    {
        assert_eq!(odd_days(zone, year), BTreeMap::from([(92, 1), (100, 1)]), "{zone}");
    }
    assert_eq!(odd_days("Australia/Lord_Howe", 2024), BTreeMap::from([(94, 1), (98, 1)]));
    assert_eq!(odd_days("Asia/Shanghai", 2024), BTreeMap::new());
    assert_eq!(odd_days("Asia/Kathmandu", 2024), BTreeMap::new());
    // Clocks of +05:30 went forward by a quarter of an hour at midnight.
    assert_eq!(odd_days("Asia/Kathmandu", 1986), BTreeMap::from([(95, 1)]));
}

// T26.
#[test]
fn a_skipped_day_has_no_window() {
    let (limiter, clock) = limiter("1/day calendar in Pacific/Apia", Timestamp::EPOCH);
    // 2011-12-29T00:00-10:00, which is followed by 2011-12-31T00:00+14:00.
    let (start, end) = (1_325_152_800_000_000, 1_325_239_200_000_000);
    let noon = Timestamp::from_micros(u64::midpoint(start, end));
    let expected =
        Window { start: Timestamp::from_micros(start), end: Timestamp::from_micros(end) };
    assert_eq!(window(&limiter, &clock, noon), expected);
    assert_eq!(window(&limiter, &clock, expected.end).start, expected.end);
}

// T26.
#[test]
fn a_quota_refills_once_each_local_day_at_its_first_instant() {
    for (name, zone, year) in each_zone() {
        let starts = first_instants(&zone, year);
        let (limiter, clock) = limiter(&format!("1/day calendar in {name}"), starts[0].0);
        let mut admitted = Vec::new();
        while clock.now() < starts[starts.len() - 1].0 {
            if limiter.check("player").is_allow() {
                admitted.push(clock.now());
            }
            clock.advance(QUARTER);
        }
        let expected: Vec<Timestamp> = starts[..starts.len() - 1].iter().map(|day| day.0).collect();
        assert_eq!(admitted, expected, "{name} in {year}");
    }
}

// S3.
#[test]
fn a_player_signs_in_once_a_day_by_the_clock_of_shanghai() {
    // 2024-02-28T15:59:59Z is a second before midnight there; the next day is the 29th.
    let (limiter, clock) =
        limiter("1/day calendar in Asia/Shanghai", Timestamp::from_micros(1_709_135_999_000_000));
    assert!(limiter.check("player").is_allow());
    let denied = limiter.check("player");
    assert_eq!(denied.retry_after(), Some(Span::from_secs(1)), "the next day's start");
    clock.advance(Span::from_secs(1));
    assert!(limiter.check("player").is_allow());
    assert_eq!(limiter.check("player").retry_after(), Some(Span::from_secs(86_400)));
}

// A2.
#[test]
fn a_week_starts_on_monday_and_a_month_on_the_first() {
    let at = Timestamp::from_micros(1_709_210_096_000_000); // 2024-02-29T12:34:56Z, a Thursday
    let whole = |rule: &str| {
        let (limiter, clock) = limiter(rule, at);
        let found = window(&limiter, &clock, at);
        [found.start, found.end].map(|at| {
            let us = i64::try_from(at.as_micros()).unwrap();
            jiff::Timestamp::from_microsecond(us).unwrap().to_string()
        })
    };
    let berlin = |unit: &str| whole(&format!("1/{unit} calendar in Europe/Berlin"));
    assert_eq!(berlin("min"), ["2024-02-29T12:34:00Z", "2024-02-29T12:35:00Z"]);
    assert_eq!(berlin("h"), ["2024-02-29T12:00:00Z", "2024-02-29T13:00:00Z"]);
    assert_eq!(berlin("day"), ["2024-02-28T23:00:00Z", "2024-02-29T23:00:00Z"]);
    assert_eq!(berlin("week"), ["2024-02-25T23:00:00Z", "2024-03-03T23:00:00Z"]);
    assert_eq!(berlin("month"), ["2024-01-31T23:00:00Z", "2024-02-29T23:00:00Z"]);
    assert_eq!(berlin("year"), ["2023-12-31T23:00:00Z", "2024-12-31T23:00:00Z"]);
    assert_eq!(whole("1/week calendar"), ["2024-02-26T00:00:00Z", "2024-03-04T00:00:00Z"]);
}

// A2.
/// Hours and minutes of the wall clock: whole, except where the clock is changed inside them.
#[test]
fn hours_and_minutes_touch_and_are_whole_unless_the_clock_is_changed() {
    for (name, zone, year) in each_zone() {
        let (limiter, clock) = limiter(&format!("1/h calendar in {name}"), Timestamp::EPOCH);
        let mut at = midnight_utc(Date::constant(year, 1, 1));
        at = window(&limiter, &clock, at).start;
        let end = midnight_utc(Date::constant(year + 1, 1, 2));
        let mut cut = 0;
        while at < end {
            let found = window(&limiter, &clock, at);
            assert_eq!(found.start, at, "{name}: it touches the one before");
            let last = found.end - Span::from_micros(1);
            let local = |at: Timestamp| {
                let us = i64::try_from(at.as_micros()).unwrap();
                zone.to_datetime(jiff::Timestamp::from_microsecond(us).unwrap())
            };
            assert_eq!(
                (local(at).date(), local(at).hour()),
                (local(last).date(), local(last).hour())
            );
            let is_whole = found.end.since(at) == Span::from_secs(3_600);
            assert!(is_whole || found.end.since(at) < Span::from_secs(3_600), "{name} at {at:?}");
            cut += usize::from(!is_whole);
            at = found.end;
        }
        assert!(cut <= 4, "{name} in {year}: {cut} hours are not whole");
    }
}

// T25.
#[test]
fn windows_at_both_ends_of_time_are_like_any_other() {
    let instants = [
        0,
        1,
        1 << 32,
        (1 << 53) + 1,
        i64::MAX as u64,
        253_402_300_800_000_000,
        u64::MAX - 1,
        u64::MAX,
    ];
    for (name, _, _) in each_zone() {
        for unit in ["min", "h", "day", "week", "month", "year"] {
            let (limiter, clock) =
                limiter(&format!("1/{unit} calendar in {name}"), Timestamp::EPOCH);
            for at in instants.map(Timestamp::from_micros) {
                let found = window(&limiter, &clock, at);
                let inside = found.start <= at && (at < found.end || at == Timestamp::MAX);
                assert!(inside, "{unit} of {name} at {at:?}: {found:?}");
                let _ = limiter.check("alice");
            }
        }
    }
}

// T25.
/// The calendar ends with the year 9999; up to there and beyond it, windows touch.
#[test]
fn the_last_windows_of_the_calendar_touch_too() {
    for (zone, unit) in [
        ("Europe/Berlin", "day"),
        ("Asia/Shanghai", "week"),
        ("Pacific/Apia", "month"),
        ("Asia/Kathmandu", "year"),
    ] {
        let (limiter, clock) = limiter(&format!("1/{unit} calendar in {zone}"), Timestamp::EPOCH);
        let mut at = midnight_utc(Date::constant(9990, 1, 1));
        at = window(&limiter, &clock, at).start;
        while at < Timestamp::MAX {
            let found = window(&limiter, &clock, at);
            assert_eq!(found.start, at, "{unit} of {zone}: it touches the one before");
            at = found.end;
        }
    }
}

// A2.
#[test]
fn the_error_names_an_unknown_zone() {
    let text = "5/day  calendar in  Mars/Olympus_Mons ";
    let error = text.parse::<tidegate::Rule>().unwrap_err();
    assert_eq!(error.kind(), &RuleErrorKind::UnknownZone);
    assert_eq!(&text[error.span()], "Mars/Olympus_Mons");
    let shown = error.to_string();
    assert!(shown.contains("Mars/Olympus_Mons") && shown.contains("^^^^"), "{shown}");
    assert!("5/day calendar in Etc/GMT+8".parse::<tidegate::Rule>().is_ok());
    assert!("5/day calendar in UTC".parse::<tidegate::Rule>().is_ok());
}
