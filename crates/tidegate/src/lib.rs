//! Flow control for Rust: exact rate limits, fair waits and concurrency permits, in one rule text.
//!
//! ```
//! use tidegate::Limiter;
//!
//! let limiter = Limiter::new("100/s burst 20".parse()?);
//!
//! let decision = limiter.check("alice");
//! if decision.is_deny() {
//!     println!("try again in {:?}", decision.retry_after());
//! }
//! # Ok::<(), tidegate::RuleError>(())
//! ```
//!
//! - [`Limiter`] limits by key: per user, per address, per API key. [`Gate`] limits everything at once.
//! - [`Rule`] is what they obey. `100/s burst 20`, `1/day calendar in Asia/Shanghai`,
//!   `100/min sliding-log`, `10/s queue capacity 50 wait 2s`, `concurrency 5`: one language for every
//!   algorithm. [`Rule::explain`] says what a rule means.
//! - [`Decision`] is the answer: allow, wait or deny, with what remains and when to come back. A denial
//!   is a value, not an error.
//! - [`Limiter::acquire`] waits for one's turn, [`Request::block`] does it with a thread,
//!   [`Limiter::reserve`] tells how long it will take. Who gives up gets it back.
//! - [`Permit`] is a place among those in flight under a concurrency limit; it is given back when it is
//!   dropped, whatever happens.
//! - [`AdaptiveGate`] finds out how many may be in flight, [`Shedder`] turns away what matters least under load,
//!   [`RetryBudget`] keeps retries to a share of the requests.
//! - [`Limiter::builder`] bounds the number of keys and says what happens when there is no room. A key in
//!   debt is never forgotten. [`Snapshot`] keeps debts over a restart, [`Limiter::batch`] decides many
//!   requests in one go.
//! - [`check_all`] decides several requests as one: all pass, or none is charged.
//! - [`Throttles`] takes its rate from each request, as redis-cell's `CL.THROTTLE` does.
//! - [`ManualClock`] lets your tests say what time it is.
//!
//! What each algorithm admits, in any interval, is published and tested: see the bounds in the
//! guide. Nothing here needs an async runtime.
//!
//! # Features
//! - `zones` (default): named time zones in calendar rules.
//! - `tokio`: `TokioClock`, which follows tokio's time also when it is paused.
//! - `macros`: the attribute `#[limit("20/s")]` for functions and methods.
//! - `stream`: `stream.limited(&gate)`, and consumers that keep to a rate.

// What readers copy compiles without a warning.
#![doc(test(attr(deny(unused_must_use))))]

#[cfg(feature = "macros")]
mod attribute;
mod clock;
mod gate;
mod joint;
mod limiter;
mod load;
#[cfg(all(test, tidegate_loom))]
mod loom_tests;
mod request;
mod rule;
#[cfg(all(test, tidegate_shuttle))]
mod shuttle_tests;
mod slot;
mod snapshot;
pub mod store;
#[cfg(feature = "stream")]
mod stream;
mod sync;
mod throttle;
mod wait;

#[cfg(feature = "macros")]
pub use attribute::FromDenied;
#[cfg(feature = "macros")]
#[doc(hidden)]
pub use attribute::expansion as __limit;
#[cfg(feature = "tokio")]
pub use clock::TokioClock;
pub use clock::{CachedClock, Clock, ManualClock, Sleep, SystemClock};
pub use gate::Gate;
pub use joint::check_all;
pub use limiter::{Builder, Limiter};
pub use load::{
    AdaptiveAcquire, AdaptiveGate, AdaptivePermit, Cause, Reading, RetryBudget, Shed, ShedPermit,
    Shedder, ShedderBuilder, Signal, Unread,
};
pub use request::Request;
pub use rule::Rule;
pub use snapshot::{Attached, Loaded, Snapshot, SnapshotError};
pub use store::memory::{Batch, Overflow, ThrottleBatch};
pub use store::{Audit, Joint, KeyName, PermitRecord, Stats, Top, TopKey};
#[cfg(feature = "stream")]
pub use stream::{Consume, LimitStream, Limited};
pub use throttle::Throttles;
pub use tidegate_core::{
    Adaptive, Decision, Denied, Level, Priority, Retries, Retry, RuleError, RuleErrorKind, Sample,
    Span, Throttle, Throttled, Timestamp, UnknownPriority, Verdict, Watermarks, Window, ZeroRate,
};
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
