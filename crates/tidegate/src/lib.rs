//! Rate limits, fair waiting and concurrency permits, for one process.
//!
//! ```
//! use tidegate::Limiter;
//!
//! let per_user = Limiter::new("100/s burst 20".parse()?);
//!
//! let decision = per_user.check("alice");
//! if let Some(wait) = decision.retry_after() {
//!     println!("denied, retry after {wait}");
//! }
//! # Ok::<(), tidegate::RuleError>(())
//! ```
//!
//! A [`Limiter`] counts by key: by user, address or API key. A [`Gate`] counts all requests together. Both enforce a
//! [`Rule`] and return a [`Decision`]: *allow*, *wait* or *deny*, with what remains and when to retry. A denial is a
//! value, not an error.
//!
//! | to | use |
//! |---|---|
//! | deny a request that is over the limit | [`Limiter::check`] |
//! | let a request wait for its turn | [`Limiter::acquire`] in async code, [`Request::block`] in a thread |
//! | find out how long a request would wait | [`Limiter::reserve`] |
//! | limit how many requests run at once | a rule such as `concurrency 5`, and [`Limiter::try_acquire`] |
//! | set a cost or a deadline | [`Limiter::request`] |
//! | enforce several limits at once | [`check_all`]: all are charged, or none |
//! | charge a cost that is known afterwards | [`Request::charge`] |
//! | change a rule while it is in use | [`Limiter::set_rule`] |
//! | let the load set the limit | [`load::AdaptiveGate`], [`load::Shedder`], [`load::RetryBudget`] |
//! | bound the number of keys | [`Limiter::builder`] |
//! | keep counts over a restart | [`snapshot::Snapshot`] |
//! | take the rate from each request, as redis-cell does | [`throttle::Throttles`] |
//! | control the time in a test | [`ManualClock`] |
//!
//! # Rules
//!
//! A rule is a line of text, the same in code, configuration and on the wire; or it is built from numbers.
//!
//! ```
//! use tidegate::Rule;
//!
//! let rule: Rule = "1/day calendar in Asia/Shanghai".parse()?;
//! assert_eq!(rule.explain(), "admits 1 in each calendar day of Asia/Shanghai; up to 2 around midnight");
//!
//! assert_eq!(Rule::per_second(100).burst(20).build()?, "100/s burst 20".parse()?);
//! # Ok::<(), tidegate::RuleError>(())
//! ```
//!
//! | rule | algorithm |
//! |---|---|
//! | `100/s burst 20` | token bucket |
//! | `20/s paced` | evenly spaced requests, without bursts |
//! | `5/15min sliding-log` | never more than 5 in any 15 minutes |
//! | `10000/min sliding` | about 10 000 in any minute, in constant memory |
//! | `1/30min fixed`, `1/day calendar` | windows of the clock or of the calendar |
//! | `10/s queue capacity 50 wait 2s` | leaky bucket that lets requests wait |
//! | `5/s smooth`, `5/s warmup 1s` | Guava's rate limiters |
//! | `concurrency 5` | requests in flight |
//! | `10r/s burst=20 nodelay` | nginx's `limit_req` |
//!
//! # Guarantees
//!
//! - Decisions are exact integer arithmetic, and the bounds of every algorithm in any interval are published and tested.
//! - The number of keys is bounded, and a key in debt is never evicted.
//! - Waiting is first come, first served. A cancelled wait returns its cost.
//! - No async runtime is needed.
//!
//! # Features
//!
//! - `zones` (default): named time zones in calendar rules.
//! - `tokio`: a `TokioClock`, which follows tokio's time, also when it is paused.
//! - `macros`: the attribute `#[limit("20/s")]` for functions and methods.
//! - `stream`: `stream.limited(&gate)`, and consumers with a limited rate.

// What readers copy compiles without a warning.
#![doc(test(attr(deny(unused_must_use))))]

#[cfg(feature = "macros")]
mod attribute;
pub mod clock;
mod gate;
mod joint;
pub mod limiter;
pub mod load;
#[cfg(all(test, tidegate_loom))]
mod loom_tests;
mod request;
pub mod rule;
#[cfg(all(test, tidegate_shuttle))]
mod shuttle_tests;
mod slot;
pub mod snapshot;
pub mod store;
#[cfg(feature = "stream")]
pub mod stream;
mod sync;
pub mod throttle;
mod wait;

#[cfg(feature = "macros")]
pub use attribute::FromDenied;
#[cfg(feature = "macros")]
#[doc(hidden)]
pub use attribute::expansion as __limit;
pub use clock::{Clock, ManualClock, SystemClock};
pub use gate::Gate;
pub use joint::check_all;
pub use limiter::Limiter;
pub use request::Request;
pub use rule::Rule;
pub use store::Joint;
pub use tidegate_core::{Decision, Denied, Retry, RuleError, Span, Timestamp, Verdict};
#[cfg(feature = "macros")]
pub use tidegate_macros::limit;
pub use wait::{Acquire, Permit, Reservation};

/// Runs every example of the guide as a test; those of the README need layers too, and run in tidegate-tower.
#[cfg(doctest)]
mod pages {
    macro_rules! pages {
        ($($name:ident: $path:literal),+ $(,)?) => {
            $(#[doc = include_str!($path)] struct $name;)+
        };
    }
    pages!(
        Guide: "../../../docs/guide/README.md",
        Bounds: "../../../docs/guide/bounds.md",
        Choosing: "../../../docs/guide/choosing.md",
        Clocks: "../../../docs/guide/clocks.md",
        FlashSale: "../../../docs/guide/flash-sale.md",
        KeysAndCosts: "../../../docs/guide/keys-and-costs.md",
        Load: "../../../docs/guide/load.md",
        ManyKeys: "../../../docs/guide/many-keys.md",
        Rules: "../../../docs/guide/rules.md",
        Waiting: "../../../docs/guide/waiting.md",
        AdaptiveLimits: "../../../spec/adaptive/README.md",
        Aimd: "../../../spec/adaptive/aimd.md",
        Gradient2: "../../../spec/adaptive/gradient2.md",
        Vegas: "../../../spec/adaptive/vegas.md",
    );
    #[cfg(feature = "tokio")]
    pages!(Testing: "../../../docs/guide/testing.md");
    #[cfg(feature = "macros")]
    pages!(
        Attribute: "../../../docs/guide/attribute.md",
        FromOtherLibraries: "../../../docs/guide/from-other-libraries.md",
    );
    #[cfg(feature = "stream")]
    pages!(Streams: "../../../docs/guide/streams.md");
}
