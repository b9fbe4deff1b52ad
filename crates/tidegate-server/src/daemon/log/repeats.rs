//! Events of one kind are logged up to a rate; a summary stands for the others.
//!
//! Always   A kind is a place in the code. There are as many as the program has lines that log, so no peer can make more
//!          of them, and whatever a peer does a hundred thousand times is logged as often as [`RULE`] says.
//! Always   What is suppressed is counted, and told within [`REPORT_EVERY`] by one line a kind, with the first of them.

use crate::server::status::{DropReason, LogDrops};
use std::collections::HashMap;
use std::fmt::{self, Debug, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidegate::{Clock, Limiter, Span, SystemClock, Timestamp};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// How often events of one kind are logged: so many at once, and then a megabyte in about two hours.
pub(super) const RULE: &str = "1/s burst 50";
/// Between two summaries.
pub(super) const REPORT_EVERY: Span = Span::from_secs(10);
/// Events about the log itself, which are few, are always logged.
pub(super) const LOG_TARGET: &str = "tidegate::log";
/// As much of an event as a summary repeats.
const EXAMPLE_BYTES_MAX: usize = 200;
/// More lines that log than the program and its libraries have.
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

/// What stands for the events of one kind that were not logged.
#[derive(Debug)]
struct Summary {
    level: Level,
    count: u64,
    /// The message of the first of them.
    example: String,
}

impl Suppressed {
    /// Counts one more of this kind, if it is not the first.
    fn count(&mut self, kind: &Identifier) -> bool {
        let summary = self.by_kind.get_mut(kind);
        summary.map(|summary| summary.count += 1).is_some()
    }

    /// Counts one that was the first of its kind when this was begun.
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
        if !self.lock().count(&kind) {
            // Not under the lock: a value that is written may log, or panic, which is logged too.
            let example = message(event);
            self.lock().count_first(kind, *metadata.level(), example);
        }
        false
    }

    /// Logs a line for each kind of which events were suppressed, if it is time to. Returns whether it is.
    pub(super) fn report_if_due(&self) -> bool {
        let is_due = self.clock.now().since(self.lock().since) >= REPORT_EVERY;
        if is_due {
            self.report();
        }
        is_due
    }

    /// Logs a line for each kind of which events were suppressed since the last time.
    pub(super) fn report(&self) {
        let mut suppressed = self.lock();
        let now = self.clock.now();
        let seconds = now.since(std::mem::replace(&mut suppressed.since, now)).as_secs_ceil();
        let by_kind = std::mem::take(&mut suppressed.by_kind);
        // To log takes locks of others, and may come back here.
        drop(suppressed);
        for Summary { level, count, example } in by_kind.into_values() {
            if level == Level::ERROR {
                tracing::error!(target: LOG_TARGET, "… and {count} more in the last {seconds} s: {example}");
            } else {
                tracing::warn!(target: LOG_TARGET, "… and {count} more in the last {seconds} s: {example}");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Suppressed> {
        self.suppressed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As a layer of the subscriber.
pub(super) struct LimitRepeats<C: Clock = SystemClock>(pub(super) Arc<Repeats<C>>);

impl<S: Subscriber, C: Clock + Clone> Layer<S> for LimitRepeats<C> {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.0.admits(event)
    }
}

/// The beginning of an event's message.
fn message(event: &Event<'_>) -> String {
    let mut message = Message(String::new());
    event.record(&mut message);
    message.0
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            // It ends early where there is no more room.
            let _ = write!(self, "{value:?}");
        }
    }
}

impl Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = EXAMPLE_BYTES_MAX - self.0.len();
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
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

    /// What was logged: the layer that would write it.
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

    struct Bench {
        clock: ManualClock,
        drops: Arc<LogDrops>,
        repeats: Arc<Repeats<ManualClock>>,
        logged: Logged,
    }

    /// Runs this with a log of its own.
    fn with_log(test: impl FnOnce(&Bench)) {
        let (clock, drops) = (ManualClock::new(), Arc::new(LogDrops::default()));
        let repeats = Arc::new(Repeats::new(clock.clone(), Arc::clone(&drops)));
        let logged = Logged::default();
        let layers = registry().with(logged.clone()).with(LimitRepeats(Arc::clone(&repeats)));
        let bench = Bench { clock, drops, repeats, logged };
        tracing::subscriber::with_default(layers, || test(&bench));
    }

    fn flood(number: u64) {
        for number in 0..number {
            tracing::warn!("a peer did it: {number}");
        }
    }

    #[test]
    fn a_flood_of_one_kind_is_a_few_lines_and_a_summary() {
        with_log(|bench| {
            flood(100_000);
            assert_eq!(bench.logged.take().len(), 50);
            assert_eq!(bench.drops.count(DropReason::Repeated), 99_950);
            assert_eq!(bench.drops.lost(), 0);
            assert!(!bench.repeats.report_if_due());
            assert_eq!(bench.logged.take(), [""; 0], "it is not time yet");
            bench.clock.advance(REPORT_EVERY);
            bench.repeats.report_if_due();
            let summary = "… and 99950 more in the last 10 s: a peer did it: 50";
            assert_eq!(bench.logged.take(), [summary]);
            bench.clock.advance(REPORT_EVERY);
            bench.repeats.report_if_due();
            assert_eq!(bench.logged.take(), [""; 0], "there is nothing more to tell");
            flood(100);
            assert_eq!(bench.logged.take().len(), 20, "as much as twenty seconds have brought");
        });
    }

    #[test]
    fn a_flood_of_one_kind_does_not_keep_another_from_being_logged() {
        with_log(|bench| {
            flood(1_000);
            bench.logged.take();
            tracing::error!("something else");
            assert_eq!(bench.logged.take(), ["something else"]);
        });
    }

    #[test]
    fn a_value_that_is_written_may_log() {
        /// What logging takes, and whether it could be taken each time when the value was written.
        struct Value<'a>(&'a Repeats<ManualClock>, &'a Mutex<Vec<bool>>);

        impl fmt::Display for Value<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // Not by an event: one that is inside of another goes to no subscriber but a global one.
                self.1.lock().unwrap().push(self.0.suppressed.try_lock().is_ok());
                f.write_str("a value")
            }
        }
        with_log(|bench| {
            let could_log = Mutex::default();
            for _ in 0..60 {
                tracing::warn!("{}", Value(&bench.repeats, &could_log));
            }
            assert_eq!(could_log.into_inner().unwrap(), [true; 51], "50, and an example");
            bench.logged.take();
            bench.repeats.report();
            assert_eq!(bench.logged.take(), ["… and 10 more in the last 0 s: a value"]);
        });
    }

    #[test]
    fn a_summary_is_as_short_as_the_log_wants_it() {
        with_log(|bench| {
            for _ in 0..51 {
                tracing::info!("{}", "é".repeat(1_000_000));
            }
            bench.logged.take();
            bench.repeats.report();
            let summaries = bench.logged.take();
            assert_eq!(summaries.len(), 1);
            assert!(summaries[0].len() < EXAMPLE_BYTES_MAX + 50, "{}", summaries[0]);
        });
    }
}
