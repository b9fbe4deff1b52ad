//! Dates of the Gregorian calendar as days since the Unix epoch, and the instants that rules name.
//!
//! Always   Only 1970 and later: a timestamp is unsigned. Exact for every day a timestamp can reach.

/// A date from 1970 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Date {
    pub(crate) year: u64,
    /// 1 to 12.
    pub(crate) month: u64,
    /// 1 to 31.
    pub(crate) day: u64,
}

/// Days from 0000-03-01 to 1970-01-01: years are counted from March, so that the leap day is last.
const EPOCH_DAY: u64 = 719_468;
/// Days in the 400 years after which the calendar repeats.
const ERA_DAYS: u64 = 146_097;

/// Returns the date that is `days` days after 1970-01-01.
pub(crate) fn date_of(days: u64) -> Date {
    let days = days + EPOCH_DAY;
    let (era, day_of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    Date { year, month, day }
}

/// Returns the days from 1970-01-01 to a date, which must not be earlier.
pub(crate) fn days_since_epoch(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * ERA_DAYS + day_of_era - EPOCH_DAY
}

/// Returns the number of days of a month.
pub(crate) fn days_in_month(year: u64, month: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_a_thousand_years_round_trips() {
        let mut expected = Date { year: 1970, month: 1, day: 1 };
        for days in 0..365_250 {
            let date = date_of(days);
            assert_eq!(date, expected);
            assert_eq!(days_since_epoch(date.year, date.month, date.day), days);
            expected.day += 1;
            if expected.day > days_in_month(expected.year, expected.month) {
                expected.day = 1;
                expected.month += 1;
            }
            if expected.month > 12 {
                expected.month = 1;
                expected.year += 1;
            }
        }
    }
}
