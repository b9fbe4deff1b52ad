//! Limits how often events of one kind are logged; a summary replaces the others.
//!
//! Always   A kind is a log statement in the code. No client can make more of them, and an event that a client triggers a hundred
//!          thousand times is logged at the rate of [`RULE`].
//! Always   Suppressed events are counted, and reported within [`REPORT_EVERY`] by one line for each kind, with the first of them.

use crate::server::status::{DropReason, LogDrops};
use crate::sync::lock;
use std::collections::HashMap;
use std::fmt::{self, Debug, Write};
use std::sync::{Arc, Mutex};
use tidegate::{Clock, Limiter, Span, SystemClock, Timestamp};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The rate of events of one kind: a burst of 50, and then about a megabyte in two hours.
pub(super) const RULE: &str = "1/s burst 50";
/// The interval between two summaries.
pub(super) const REPORT_EVERY: Span = Span::from_secs(10);
/// The target of events about the log itself, which are few and always logged.
pub(super) const LOG_TARGET: &str = "tidegate::log";
/// The maximum length of the event that a summary repeats.
const EXAMPLE_BYTES_MAX: usize = 200;
/// More log statements than the program and its libraries have.
const KINDS_MAX: usize = 4_096;

/// Decides which events are logged.
#[derive(Debug)]
pub(super) struct Repeats<C: Clock = SystemClock> {
    limiter: Limiter<C>,
    clock: C,
    suppressed: Mutex<Suppressed>,
    drops: Arc<LogDrops>,
}

#[derive(Debug)]
struct Suppressed {
    by_kind: HashMap<Identifier, Summary>,
    since: Timestamp,
}

/// The events of one kind that were not logged.
#[derive(Debug)]
struct Summary {
    level: Level,
    count: u64,
    /// The message of the first of them.
    example: String,
}

impl Suppressed {
    /// Counts an event of this kind, and returns whether the kind was known.
    fn count(&mut self, kind: &Identifier) -> bool {
        let summary = self.by_kind.get_mut(kind);
        summary.map(|summary| summary.count += 1).is_some()
    }

    /// Counts an event of a kind that was not known before its message was formatted.
    fn count_first(&mut self, kind: Identifier, level: Level, example: String) {
        let first = Summary { level, count: 0, example };
        self.by_kind.entry(kind).or_insert(first).count += 1;
    }
}

impl<C: Clock + Clone> Repeats<C> {
    pub(super) fn new(clock: C, drops: Arc<LogDrops>) -> Self {
        let rule = RULE.parse().expect("a test parses it");
        let limiter = Limiter::builder(rule).max_keys(KINDS_MAX).with_clock(clock.clone());
        let suppressed = Suppressed { by_kind: HashMap::new(), since: clock.now() };
        Self { limiter, clock, suppressed: Mutex::new(suppressed), drops }
    }

    /// Returns whether this event is to be logged; counts it otherwise.
    fn admits(&self, event: &Event<'_>) -> bool {
        let metadata = event.metadata();
        let kind = metadata.callsite();
        if metadata.target() == LOG_TARGET || self.limiter.check(&kind).is_allow() {
            return true;
        }
        self.drops.add(DropReason::Repeated);
        if !lock(&self.suppressed).count(&kind) {
            // Not under the lock: formatting a value may log, or panic, which is logged too.
            let example = message(event);
            lock(&self.suppressed).count_first(kind, *metadata.level(), example);
        }
        false
    }

    /// Logs the summaries if they are due. Returns whether they were.
    pub(super) fn report_if_due(&self) -> bool {
        let is_due = self.clock.now().since(lock(&self.suppressed).since) >= REPORT_EVERY;
        if is_due {
            self.report();
        }
        is_due
    }

    /// Logs a summary for each kind with suppressed events since the last summaries.
    pub(super) fn report(&self) {
        let mut suppressed = lock(&self.suppressed);
        let now = self.clock.now();
        let seconds = now.since(std::mem::replace(&mut suppressed.since, now)).as_secs_ceil();
        let by_kind = std::mem::take(&mut suppressed.by_kind);
        // Logging takes other locks, and may re-enter this module.
        drop(suppressed);
        for Summary { level, count, example } in by_kind.into_values() {
            if level == Level::ERROR {
                tracing::error!(target: LOG_TARGET, "… and {count} more in the last {seconds} s: {example}");
            } else {
                tracing::warn!(target: LOG_TARGET, "… and {count} more in the last {seconds} s: {example}");
            }
        }
    }
}

/// The layer of the subscriber that suppresses events.
pub(super) struct LimitRepeats<C: Clock = SystemClock>(pub(super) Arc<Repeats<C>>);

impl<S: Subscriber, C: Clock + Clone> Layer<S> for LimitRepeats<C> {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.0.admits(event)
    }
}

/// Returns the beginning of an event's message.
fn message(event: &Event<'_>) -> String {
    let mut message = Message(String::new());
    event.record(&mut message);
    message.0
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            // The error means that the rest of the message does not fit.
            let _ = write!(self, "{value:?}");
        }
    }
}

impl Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = EXAMPLE_BYTES_MAX - self.0.len();
        if text.len() <= left {
            self.0.push_str(text);
            return Ok(());
        }
        let end = (0..=left).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.0.push_str(&text[..end]);
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate::ManualClock;
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::registry;

    /// A layer that records the logged messages.
    #[derive(Clone, Default)]
    struct Logged(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Logged {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push(message(event));
        }
    }

    impl Logged {
        fn take(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    struct Harness {
        clock: ManualClock,
        drops: Arc<LogDrops>,
        repeats: Arc<Repeats<ManualClock>>,
        logged: Logged,
    }

    /// Runs a test with its own log.
    fn with_log(test: impl FnOnce(&Harness)) {
        let (clock, drops) = (ManualClock::new(), Arc::new(LogDrops::default()));
        let repeats = Arc::new(Repeats::new(clock.clone(), Arc::clone(&drops)));
        let logged = Logged::default();
        let layers = registry().with(logged.clone()).with(LimitRepeats(Arc::clone(&repeats)));
        let harness = Harness { clock, drops, repeats, logged };
        tracing::subscriber::with_default(layers, || test(&harness));
    }

    fn flood(number: u64) {
        for number in 0..number {
            tracing::warn!("a peer did it: {number}");
        }
    }

    #[test]
    fn a_flood_of_one_kind_is_a_few_lines_and_a_summary() {
        with_log(|harness| {
            flood(100_000);
            assert_eq!(harness.logged.take().len(), 50);
            assert_eq!(harness.drops.count(DropReason::Repeated), 99_950);
            assert_eq!(harness.drops.lost(), 0);
            assert!(!harness.repeats.report_if_due());
            assert_eq!(harness.logged.take(), [""; 0], "no summary is due yet");
            harness.clock.advance(REPORT_EVERY);
            harness.repeats.report_if_due();
            let summary = "… and 99950 more in the last 10 s: a peer did it: 50";
            assert_eq!(harness.logged.take(), [summary]);
            harness.clock.advance(REPORT_EVERY);
            harness.repeats.report_if_due();
            assert_eq!(harness.logged.take(), [""; 0], "no more events were suppressed");
            flood(100);
            assert_eq!(harness.logged.take().len(), 20, "twenty seconds refill twenty");
        });
    }

    #[test]
    fn a_flood_of_one_kind_does_not_keep_another_from_being_logged() {
        with_log(|harness| {
            flood(1_000);
            harness.logged.take();
            tracing::error!("something else");
            assert_eq!(harness.logged.take(), ["something else"]);
        });
    }

    #[test]
    fn formatting_a_value_may_log() {
        /// Records whether the lock is free each time the value is formatted.
        struct Value<'a>(&'a Repeats<ManualClock>, &'a Mutex<Vec<bool>>);

        impl fmt::Display for Value<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // Not by an event: an event inside another goes to a global subscriber only.
                self.1.lock().unwrap().push(self.0.suppressed.try_lock().is_ok());
                f.write_str("a value")
            }
        }
        with_log(|harness| {
            let could_log = Mutex::default();
            for _ in 0..60 {
                tracing::warn!("{}", Value(&harness.repeats, &could_log));
            }
            assert_eq!(could_log.into_inner().unwrap(), [true; 51], "50, and an example");
            harness.logged.take();
            harness.repeats.report();
            assert_eq!(harness.logged.take(), ["… and 10 more in the last 0 s: a value"]);
        });
    }

    #[test]
    fn a_summary_repeats_only_the_beginning_of_an_event() {
        with_log(|harness| {
            for _ in 0..51 {
                tracing::info!("{}", "é".repeat(1_000_000));
            }
            harness.logged.take();
            harness.repeats.report();
            let summaries = harness.logged.take();
            assert_eq!(summaries.len(), 1);
            assert!(summaries[0].len() < EXAMPLE_BYTES_MAX + 50, "{}", summaries[0]);
        });
    }
}
