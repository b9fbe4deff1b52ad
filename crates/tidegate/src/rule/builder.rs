//! Building rules from numbers instead of text.
//!
//! Always   A builder only writes rule text, and [`RuleBuilder::build`] parses it. So a built rule has no meaning that
//!          text does not have, and a bad number gives the same error.
//! Rounding A period, a warm-up or a lease is rounded up to whole microseconds and a wait down.

use super::Rule;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;
use tidegate_core::{CalendarUnit, RuleError, Span};

/// A rule in the making: started by a function of [`Rule`] such as [`Rule::per_second`], completed by
/// [`build`](Self::build).
///
/// `A` is the algorithm, and has only the options of that algorithm: a fixed window with a burst does not compile. A number
/// that is out of range is an error of `build`. Setting an option again replaces its value.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Rule;
///
/// assert_eq!(Rule::per_second(100).burst(20).build()?, "100/s burst 20".parse()?);
/// assert_eq!(Rule::per(5, Duration::from_secs(900)).sliding_log().build()?, "5/15min sliding-log".parse()?);
/// assert_eq!(Rule::concurrency(5).lease(Duration::from_secs(30)).build()?, "concurrency 5 lease 30s".parse()?);
///
/// let error = Rule::per_second(100).burst(0).build().unwrap_err();
/// assert_eq!(error.message(), "the burst must be at least 1");
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[must_use = "a builder is not a rule until `build` is called"]
pub struct RuleBuilder<A> {
    start: String,
    /// The words of each option. They are written in the order of the names, which is the order of the rule language.
    options: BTreeMap<&'static str, String>,
    algorithm: PhantomData<A>,
}

/// The algorithms of a [`RuleBuilder`], each with its options.
pub mod algorithm {
    macro_rules! algorithms {
        ($($(#[$doc:meta])+ $name:ident;)+) => {
            $($(#[$doc])+ #[derive(Debug)] pub enum $name {})+
        };
    }
    algorithms! {
        /// A rate without further options: a token bucket whose burst is the count, unless another algorithm is chosen.
        Rate;
        /// A token bucket with options.
        TokenBucket;
        /// Fixed windows.
        Fixed;
        /// Windows of a calendar.
        Calendar;
        /// A leaky bucket as a meter.
        Leaky;
        /// A leaky bucket as a queue.
        Queue;
        /// Guava's `SmoothBursty`.
        Smooth;
        /// Guava's `SmoothWarmingUp`.
        Warmup;
        /// Permits in flight.
        Concurrency;
        /// nginx's `limit_req`.
        Nginx;
        /// An algorithm without options.
        Complete;
    }
}
use algorithm::{
    Calendar, Complete, Concurrency, Fixed, Leaky, Nginx, Queue, Rate, Smooth, TokenBucket, Warmup,
};

/// Rules from numbers. Each function starts a [`RuleBuilder`].
impl Rule {
    /// Starts a rule of `count` per second.
    pub fn per_second(count: u64) -> RuleBuilder<Rate> {
        RuleBuilder::new(format!("{count}/s"))
    }

    /// Starts a rule of `count` per minute.
    pub fn per_minute(count: u64) -> RuleBuilder<Rate> {
        RuleBuilder::new(format!("{count}/min"))
    }

    /// Starts a rule of `count` per hour.
    pub fn per_hour(count: u64) -> RuleBuilder<Rate> {
        RuleBuilder::new(format!("{count}/h"))
    }

    /// Starts a rule of `count` per 24 hours; see [`per_calendar`](Self::per_calendar) for days of the calendar.
    pub fn per_day(count: u64) -> RuleBuilder<Rate> {
        RuleBuilder::new(format!("{count}/day"))
    }

    /// Starts a rule of `count` per `period`.
    pub fn per(count: u64, period: Duration) -> RuleBuilder<Rate> {
        RuleBuilder::new(format!("{count}/{}", up(period)))
    }

    /// Starts a rule of `count` per unit of the calendar, in UTC or the [zone](RuleBuilder::zone).
    pub fn per_calendar(count: u64, unit: CalendarUnit) -> RuleBuilder<Calendar> {
        let unit = match unit {
            CalendarUnit::Minute => "min",
            CalendarUnit::Hour => "h",
            CalendarUnit::Day => "day",
            CalendarUnit::Week => "week",
            CalendarUnit::Month => "month",
            CalendarUnit::Year => "year",
        };
        RuleBuilder::new(format!("{count}/{unit} calendar"))
    }

    /// Starts a rule of `max` requests in flight.
    pub fn concurrency(max: u64) -> RuleBuilder<Concurrency> {
        RuleBuilder::new(format!("concurrency {max}"))
    }

    /// Starts a rule of nginx's `limit_req` with a rate of `count` `r/s`.
    pub fn nginx_per_second(count: u64) -> RuleBuilder<Nginx> {
        RuleBuilder::new(format!("{count}r/s"))
    }

    /// Starts a rule of nginx's `limit_req` with a rate of `count` `r/m`.
    pub fn nginx_per_minute(count: u64) -> RuleBuilder<Nginx> {
        RuleBuilder::new(format!("{count}r/m"))
    }
}

impl<A> RuleBuilder<A> {
    fn new(start: String) -> Self {
        Self { start, options: BTreeMap::new(), algorithm: PhantomData }
    }

    fn option(mut self, name: &'static str, words: String) -> Self {
        self.options.insert(name, words);
        self
    }

    fn value(self, name: &'static str, value: impl fmt::Display) -> Self {
        self.option(name, format!("{name} {value}"))
    }

    /// Makes the rule.
    ///
    /// # Errors
    /// A number is out of range, or a time zone is unknown. The error shows the text of the rule and what is wrong with it.
    pub fn build(&self) -> Result<Rule, RuleError> {
        self.to_string().parse()
    }
}

impl RuleBuilder<Rate> {
    fn algorithm<A>(self, words: &str) -> RuleBuilder<A> {
        RuleBuilder::new(format!("{}{words}", self.start))
    }

    /// Lets a token bucket hold `burst`, which is what it admits at once. Default: the count of the rate.
    pub fn burst(self, burst: u64) -> RuleBuilder<TokenBucket> {
        self.algorithm::<TokenBucket>("").burst(burst)
    }

    /// Lets the token bucket start empty. Default: full.
    pub fn start_empty(self) -> RuleBuilder<TokenBucket> {
        self.algorithm::<TokenBucket>("").start_empty()
    }

    /// Admits evenly spaced requests only: a token bucket with a burst of 1.
    pub fn paced(self) -> RuleBuilder<Complete> {
        self.algorithm(" paced")
    }

    /// Chooses fixed windows: `count` in each period of the clock.
    pub fn fixed(self) -> RuleBuilder<Fixed> {
        self.algorithm(" fixed")
    }

    /// Chooses a log: never more than `count` in any period.
    pub fn sliding_log(self) -> RuleBuilder<Complete> {
        self.algorithm(" sliding-log")
    }

    /// Chooses a sliding window of two counters: about `count` in any period.
    pub fn sliding(self) -> RuleBuilder<Complete> {
        self.algorithm(" sliding")
    }

    /// Chooses a leaky bucket as a meter, which decides as a token bucket does.
    pub fn leaky(self) -> RuleBuilder<Leaky> {
        self.algorithm(" leaky")
    }

    /// Chooses a leaky bucket as a queue: requests wait, and pass evenly spaced.
    pub fn queue(self) -> RuleBuilder<Queue> {
        self.algorithm(" queue")
    }

    /// Chooses Guava's `SmoothBursty`: a request passes as soon as earlier ones are paid for.
    pub fn smooth(self) -> RuleBuilder<Smooth> {
        self.algorithm(" smooth")
    }

    /// Chooses Guava's `SmoothWarmingUp`, which reaches its rate after `warmup`.
    pub fn warmup(self, warmup: Duration) -> RuleBuilder<Warmup> {
        self.algorithm(&format!(" warmup {}", up(warmup)))
    }
}

impl RuleBuilder<TokenBucket> {
    /// Sets what the bucket holds. Default: the count of the rate.
    pub fn burst(self, burst: u64) -> Self {
        self.value("burst", burst)
    }

    /// Lets the bucket start empty. Default: full.
    pub fn start_empty(self) -> Self {
        self.value("start", "empty")
    }
}

impl RuleBuilder<Fixed> {
    /// Starts a key's window with its first request. Default: windows of the clock, counted from 1970.
    pub fn from_first_request(self) -> Self {
        self.value("from", "first")
    }

    /// Starts one of the windows at an instant in RFC 3339, such as `2024-01-01T00:00:00+08:00`.
    pub fn from_instant(self, instant: &str) -> Self {
        self.value("from", instant)
    }
}

impl RuleBuilder<Calendar> {
    /// Sets the time zone, such as `Asia/Shanghai`. Default: UTC.
    pub fn zone(self, zone: &str) -> Self {
        self.value("in", zone)
    }
}

impl RuleBuilder<Leaky> {
    /// Sets the capacity. Default: the count of the rate.
    pub fn capacity(self, capacity: u64) -> Self {
        self.value("capacity", capacity)
    }
}

impl RuleBuilder<Queue> {
    /// Sets how many requests may wait. Default: the count of the rate.
    pub fn capacity(self, capacity: u64) -> Self {
        self.value("capacity", capacity)
    }

    /// Sets the longest wait: a request that would wait longer is denied. Default: bounded by the capacity alone.
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.value("wait", down(max_wait))
    }
}

impl RuleBuilder<Smooth> {
    /// Sets what is saved while idle. Default: one second's worth.
    pub fn burst(self, burst: u64) -> Self {
        self.value("burst", burst)
    }
}

impl RuleBuilder<Warmup> {
    /// Sets how many times slower a cold limiter is. Default: 3.
    pub fn cold_factor(self, factor: u64) -> Self {
        self.value("cold", factor)
    }
}

impl RuleBuilder<Concurrency> {
    /// Sets the longest wait for a permit. Default: as long as the caller waits.
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.value("wait", down(max_wait))
    }

    /// Sets the time after which a permit is taken back. Default: never.
    pub fn lease(self, lease: Duration) -> Self {
        self.value("lease", up(lease))
    }
}

impl RuleBuilder<Nginx> {
    /// Sets nginx's `burst=`: the requests that are admitted beyond the rate. Default: 0.
    pub fn burst(self, burst: u64) -> Self {
        self.option("burst", format!("burst={burst}"))
    }

    /// Admits the burst without delay, as nginx's `nodelay`. Replaces [`delay`](Self::delay).
    pub fn nodelay(self) -> Self {
        self.option("delay", "nodelay".to_owned())
    }

    /// Admits this many requests of the burst without delay, as nginx's `delay=`. Default: 0.
    pub fn delay(self, requests: u64) -> Self {
        self.option("delay", format!("delay={requests}"))
    }
}

fn up(duration: Duration) -> Span {
    Span::from_duration_ceil(duration)
}

fn down(duration: Duration) -> Span {
    Span::from_duration_floor(duration)
}

/// Prints the text that [`build`](Self::build) parses; the rule prints its canonical form.
impl<A> fmt::Display for RuleBuilder<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.start)?;
        self.options.values().try_for_each(|words| write!(f, " {words}"))
    }
}

impl<A> fmt::Debug for RuleBuilder<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RuleBuilder").field(&self.to_string()).finish()
    }
}

impl<A> Clone for RuleBuilder<A> {
    fn clone(&self) -> Self {
        Self { start: self.start.clone(), options: self.options.clone(), algorithm: PhantomData }
    }
}
