//! Explains a rule in a sentence: what is admitted at once, then at which rate, and the upper bound.
//!
//! Always   The numbers are the tested bounds of `docs/guide/bounds.md`.

use super::{NginxDelay, RuleKind, WindowStart, print};
use crate::rate::Rate;
use crate::time::Span;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};

pub(super) fn explain(kind: &RuleKind) -> String {
    match kind {
        RuleKind::TokenBucket { rate, burst, starts_empty } => {
            let start = if *starts_empty { "; starts empty" } else { "" };
            format!("{}{start}", bucket(*rate, *burst))
        }
        RuleKind::Leaky { rate, capacity } => bucket(*rate, *capacity),
        RuleKind::Queue { rate, capacity, wait } => queue(*rate, *capacity, *wait),
        RuleKind::Fixed { rate, from } => fixed(*rate, from),
        RuleKind::Calendar { count, unit, zone } => {
            let zone = zone.as_deref().unwrap_or("UTC");
            let twice = count.saturating_mul(2);
            let name = match print::unit_name(*unit) {
                "min" => "minute",
                "h" => "hour",
                name => name,
            };
            let edge = if matches!(name, "minute" | "hour") {
                format!("the turn of the {name}")
            } else {
                "midnight".to_owned()
            };
            format!("admits {count} in each calendar {name} of {zone}; up to {twice} around {edge}")
        }
        RuleKind::SlidingLog { rate: Rate { count, period } } => {
            format!("admits {count} at once, and never more than {count} in any {period}")
        }
        RuleKind::Sliding { rate: Rate { count, period } } => format!(
            "admits {count} at once, and about {count} in any {period}; \
             an attacker who knows the windows gets fewer than {}",
            count.saturating_mul(2)
        ),
        RuleKind::Smooth { rate, burst } => {
            let saved = burst.map_or("one second's worth".to_owned(), |burst| burst.to_string());
            format!(
                "admits one every {}; saves up to {saved} while idle; \
                 denies no request: each waits for the requests before it",
                interval(*rate)
            )
        }
        RuleKind::Warmup { rate, warmup, cold } => format!(
            "admits one every {} when warm; starts {cold} times slower and warms up in {warmup}; \
             denies no request: each waits for the requests before it",
            interval(*rate)
        ),
        RuleKind::Concurrency { max, wait, lease } => concurrency(*max, *wait, *lease),
        RuleKind::Nothing => "admits nothing: every request is denied".to_owned(),
        RuleKind::Nginx { count, per_second, burst, delay } => {
            nginx(*count, *per_second, *burst, *delay)
        }
    }
}

fn bucket(rate: Rate, capacity: u64) -> String {
    let (window, most) = window_and_most(rate, capacity);
    format!(
        "admits {capacity} at once, then one every {}; at most {most} in any {window}",
        interval(rate)
    )
}

/// Returns a readable window (a minute, or the period if it is longer) and the bound of a bucket in it.
fn window_and_most(rate: Rate, capacity: u64) -> (String, u128) {
    let minute = Span::from_secs(60);
    let (name, span) = if rate.period <= minute {
        ("60s".to_owned(), minute)
    } else {
        (rate.period.to_string(), rate.period)
    };
    let refill =
        u128::from(span.as_micros()) * u128::from(rate.count) / u128::from(rate.period.as_micros());
    (name, u128::from(capacity) + refill)
}

/// Returns the time between two admissions: exactly if it is whole microseconds, else as a fraction of the period.
fn interval(rate: Rate) -> String {
    let Rate { count, period } = rate;
    if period.as_micros().is_multiple_of(count) {
        return Span::from_micros(period.as_micros() / count).to_string();
    }
    format!("{period}/{count}")
}

fn queue(rate: Rate, capacity: u64, wait: Option<Span>) -> String {
    let longest = wait.map_or_else(String::new, |wait| format!(", none longer than {wait}"));
    format!("lets one through every {}; at most {capacity} wait{longest}", interval(rate))
}

fn fixed(Rate { count, period }: Rate, from: &WindowStart) -> String {
    let start = match from {
        WindowStart::Epoch => format!("every {period} of the clock"),
        WindowStart::FirstRequest => format!("the {period} after a first request"),
        WindowStart::Anchor(anchor) => format!("every {period} from {anchor}"),
    };
    // A window from the first request starts with a request, so at most `count - 1` of its requests are near its end.
    let most = match from {
        WindowStart::FirstRequest => count.saturating_mul(2) - 1,
        WindowStart::Epoch | WindowStart::Anchor(_) => count.saturating_mul(2),
    };
    match most {
        1 => format!("admits 1 in {start}; never 2 in any {period}"),
        most => format!("admits {count} in {start}; up to {most} around an edge"),
    }
}

fn concurrency(max: u64, wait: Option<Span>, lease: Option<Span>) -> String {
    let waits = wait.map_or_else(String::new, |wait| format!("; waits up to {wait} for a turn"));
    let ends =
        lease.map_or_else(String::new, |lease| format!("; a permit is taken back after {lease}"));
    format!("admits {max} in flight at a time{waits}{ends}")
}

fn nginx(count: u64, per_second: bool, burst: u64, delay: NginxDelay) -> String {
    let at_once = match delay {
        NginxDelay::Never => burst + 1,
        NginxDelay::After(requests) => requests.min(burst) + 1,
    };
    let waiting = burst + 1 - at_once;
    let waits = match waiting {
        0 => String::new(),
        waiting => format!(", makes the next {waiting} wait their turn"),
    };
    let interval = nginx_interval(count, per_second);
    format!(
        "admits {at_once} at once{waits}, then one every {interval}; denies the rest, as nginx does"
    )
}

/// Returns nginx's interval in whole microseconds, rounded up, unless it is shorter than one. nginx truncates `r/m` to
/// thousandths of a request per second, so its interval is longer than the rate says.
fn nginx_interval(count: u64, per_second: bool) -> String {
    if per_second {
        return interval(Rate { count, period: Span::from_secs(1) });
    }
    let rate = Rate { count: count * 1_000 / 60, period: Span::from_secs(1_000) };
    if rate.count > rate.period.as_micros() {
        return interval(rate);
    }
    Span::from_micros(rate.period.as_micros().div_ceil(rate.count)).to_string()
}
