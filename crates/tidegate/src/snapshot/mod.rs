//! What limiters remember, written to a file and read again: so that a restart keeps debts.
//!
//! Always   Each key is written as it was at one moment, while others are being asked. Nobody gets more
//!          from a limiter that was restored than what they had at the snapshot and what the time since
//!          has brought. A file that is not whole is never believed.
//! File     `format.rs` says what is in it, `file.rs` how it gets there.

mod error;
mod file;
mod format;

pub use error::SnapshotError;

use crate::clock::Clock;
use crate::limiter::Builder;
use crate::limiter::Limiter;
use crate::slot::Slot;
use crate::store::memory::{LimitParameters, MemoryStore, StoreOrigin};
use crate::store::{Fingerprint, Secret};
use crate::sync::wake::WakeList;
use format::{Contents, Head, Keys, Section, Writer};
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tidegate_core::{Limit, State, Timestamp};

/// Keys and their debts, as they were when it was taken.
///
/// ```
/// use tidegate::Limiter;
/// use tidegate::snapshot::Snapshot;
///
/// # let directory = std::env::temp_dir().join(format!("tidegate-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// let path = directory.join("limits.snapshot");
/// let limiter = Limiter::new("5/day".parse()?);
/// let _ = limiter.check_n("alice", 5);
/// Snapshot::save(&path, [("login", &limiter)])?;
///
/// // ... the process ends, and another one starts:
/// let loaded = Snapshot::load(&path);
/// assert!(loaded.problems.is_empty());
/// let limiter = loaded.snapshot.restore("login", Limiter::builder("5/day".parse()?));
/// assert!(limiter.check("alice").is_deny(), "she has had her five");
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Snapshot {
    contents: Contents,
}

/// Bytes that a program keeps in a snapshot beside its limiters, with the name that it finds them by.
///
/// ```
/// let attached: tidegate::snapshot::Attached = ("places".to_owned(), vec![1, 2, 3]);
/// ```
pub type Attached = (String, Vec<u8>);

/// What came of loading a snapshot; see [`Snapshot::load`].
///
/// ```
/// use tidegate::snapshot::Snapshot;
///
/// let loaded = Snapshot::load("/nowhere/limits.snapshot");
/// assert!(loaded.snapshot.is_empty());
/// assert!(loaded.problems.is_empty(), "that there is none yet is no problem");
/// ```
#[derive(Debug)]
#[must_use = "the problems should be logged"]
pub struct Loaded {
    /// The newest snapshot that is whole; empty if there is none.
    pub snapshot: Snapshot,
    /// What is wrong with the others. Somebody should hear of it.
    pub problems: Vec<SnapshotError>,
}

impl Snapshot {
    /// Writes what these limiters remember, each under a name. The file appears as a whole or not at
    /// all, also if the machine stops in between; the one before it is kept beside it, as
    /// `<file>.previous`. It contains the secrets by which keys are recognised, so only its owner can
    /// read it.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// # use tidegate::snapshot::Snapshot;
    /// let limiter = Limiter::new("5/day".parse()?);
    /// let error = Snapshot::save("/nowhere/limits.snapshot", [("login", &limiter)]).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn save<'a, C: Clock>(
        path: impl AsRef<Path>,
        limiters: impl IntoIterator<Item = (&'a str, &'a Limiter<C>)>,
    ) -> io::Result<()> {
        Self::save_with(path, limiters, Vec::new)
    }

    /// Writes the same, and beside it what a program wants to find again, such as
    /// [records](crate::Permit::record) of permits. `attach` is called when the limiters have been written: what it
    /// returns is not older than they are.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// # use tidegate::snapshot::Snapshot;
    /// # let directory = std::env::temp_dir().join(format!("tidegate-with-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let path = directory.join("limits.snapshot");
    /// let limiter = Limiter::new("5/day".parse()?);
    /// Snapshot::save_with(&path, [("login", &limiter)], || vec![("note".to_owned(), vec![1, 2])])?;
    /// assert_eq!(Snapshot::load(&path).snapshot.attached("note"), Some(&[1, 2][..]));
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn save_with<'a, C: Clock>(
        path: impl AsRef<Path>,
        limiters: impl IntoIterator<Item = (&'a str, &'a Limiter<C>)>,
        attach: impl FnOnce() -> Vec<Attached>,
    ) -> io::Result<()> {
        file::replace(path.as_ref(), |file| Self::write_with(file, limiters, attach))
    }

    /// Writes the same anywhere.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// # use tidegate::snapshot::Snapshot;
    /// let limiter = Limiter::new("5/day".parse()?);
    /// let _ = limiter.check("alice");
    /// let mut bytes = Vec::new();
    /// Snapshot::write(&mut bytes, [("login", &limiter)])?;
    /// assert!(Snapshot::read(&bytes).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write<'a, C: Clock>(
        output: impl Write,
        limiters: impl IntoIterator<Item = (&'a str, &'a Limiter<C>)>,
    ) -> io::Result<()> {
        Self::write_with(output, limiters, Vec::new)
    }

    /// Writes what [`save_with`](Self::save_with) writes anywhere.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// # use tidegate::snapshot::Snapshot;
    /// let (limiter, mut bytes) = (Limiter::new("5/day".parse()?), Vec::new());
    /// Snapshot::write_with(&mut bytes, [("login", &limiter)], || vec![("note".to_owned(), vec![7])])?;
    /// assert_eq!(Snapshot::read(&bytes)?.attached("note"), Some(&[7][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_with<'a, C: Clock>(
        output: impl Write,
        limiters: impl IntoIterator<Item = (&'a str, &'a Limiter<C>)>,
        attach: impl FnOnce() -> Vec<Attached>,
    ) -> io::Result<()> {
        let mut output = Writer::new(output);
        output.begin()?;
        for (name, limiter) in limiters {
            write_table(&mut output, name, &limiter.store)?;
        }
        for (name, bytes) in attach() {
            output.attached(&name, &bytes)?;
        }
        output.end()
    }

    /// The files that [`save`](Self::save) replaces or removes: the snapshot, the one before it, and what an interrupted
    /// write has left. For programs that must not let it overwrite something else.
    ///
    /// ```
    /// # use tidegate::snapshot::Snapshot;
    /// let files = Snapshot::files("state");
    /// assert_eq!(files.map(|file| file.display().to_string()), ["state", "state.previous", "state.part"]);
    /// ```
    pub fn files(path: impl AsRef<Path>) -> [PathBuf; 3] {
        file::all(path.as_ref())
    }

    /// Reads the newest snapshot that is whole: the file, or else the one before it, or else an empty
    /// one. It does not fail, because a process must be able to start; what is wrong is told.
    ///
    /// ```
    /// # use tidegate::snapshot::Snapshot;
    /// let loaded = Snapshot::load("/nowhere/limits.snapshot");
    /// assert!(loaded.snapshot.is_empty());
    /// ```
    pub fn load(path: impl AsRef<Path>) -> Loaded {
        let mut problems = Vec::new();
        for path in file::candidates(path.as_ref()) {
            match file::read(&path) {
                Ok(None) => {}
                Ok(Some(bytes)) => match Self::read(&bytes) {
                    Ok(snapshot) => return Loaded { snapshot, problems },
                    Err(error) => problems.push(error.at(&path)),
                },
                Err(error) => problems.push(SnapshotError::unreadable(error).at(&path)),
            }
        }
        Loaded { snapshot: Self::default(), problems }
    }

    /// Reads what [`write`](Self::write) wrote.
    ///
    /// ```
    /// # use tidegate::snapshot::Snapshot;
    /// let error = Snapshot::read(b"not a snapshot").unwrap_err();
    /// assert_eq!(error.to_string(), "this is not a snapshot of Tidegate");
    /// ```
    pub fn read(bytes: &[u8]) -> Result<Self, SnapshotError> {
        Ok(Self { contents: format::read(bytes)? })
    }

    /// Whether it knows no limiter.
    ///
    /// ```
    /// # use tidegate::snapshot::Snapshot;
    /// assert!(Snapshot::default().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.contents.sections.is_empty()
    }

    /// The names that it has something under.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// # use tidegate::snapshot::Snapshot;
    /// let limiter = Limiter::new("5/day".parse()?);
    /// let mut bytes = Vec::new();
    /// Snapshot::write(&mut bytes, [("login", &limiter)])?;
    /// assert_eq!(Snapshot::read(&bytes)?.names().collect::<Vec<_>>(), ["login"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.contents.sections.iter().map(|section| section.head.name.as_str())
    }

    /// Returns what was [attached](Self::save_with) under this name.
    ///
    /// ```
    /// # use tidegate::snapshot::Snapshot;
    /// assert_eq!(Snapshot::default().attached("note"), None);
    /// ```
    pub fn attached(&self, name: &str) -> Option<&[u8]> {
        let found = self.contents.attached.iter().find(|(known, _)| known == name);
        found.map(|(_, bytes)| bytes.as_slice())
    }

    /// Makes a limiter that goes on where the one of this name was, by the machine's clock; a new one
    /// if there was none. If the rule is another now, what was used goes over as
    /// [`set_rule`](Limiter::set_rule) has it.
    ///
    /// ```
    /// # use tidegate::Limiter;
    /// # use tidegate::snapshot::Snapshot;
    /// let fresh = Snapshot::default().restore("login", Limiter::builder("5/day".parse()?));
    /// assert!(fresh.check("alice").is_allow());
    /// # Ok::<(), tidegate::RuleError>(())
    /// ```
    pub fn restore(&self, name: &str, builder: Builder) -> Limiter {
        self.restore_with_clock(name, builder, crate::SystemClock::new())
    }

    /// The same, by another clock.
    ///
    /// ```
    /// # use tidegate::{Limiter, ManualClock, Span};
    /// # use tidegate::snapshot::Snapshot;
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::with_clock("1/s burst 5".parse()?, clock.clone());
    /// let _ = limiter.check_n("alice", 5);
    /// let mut bytes = Vec::new();
    /// Snapshot::write(&mut bytes, [("api", &limiter)])?;
    ///
    /// clock.advance(Span::from_secs(2));
    /// let builder = Limiter::builder("1/s burst 5".parse()?);
    /// let restored = Snapshot::read(&bytes)?.restore_with_clock("api", builder, clock);
    /// assert_eq!(restored.check_n("alice", 0).remaining, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restore_with_clock<C: Clock>(
        &self,
        name: &str,
        builder: Builder,
        clock: C,
    ) -> Limiter<C> {
        let section = self.contents.sections.iter().find(|section| section.head.name == name);
        let Some(section) = section else {
            return builder.with_clock(clock);
        };
        builder.over(|rule, config| {
            let origin = section.origin(&clock);
            let store = MemoryStore::restored(rule.limit, clock, config, &origin);
            section.pour_into(&store);
            store
        })
    }
}

fn write_table<W: Write, C: Clock>(
    output: &mut Writer<W>,
    name: &str,
    store: &MemoryStore<C>,
) -> io::Result<()> {
    // The limiter's own clock before the calendar: what lies between them is not counted, rather than
    // twice.
    let now = store.steady_now();
    let taken_at = store.clock.calendar_now();
    output.section(&Head {
        name: name.to_owned(),
        secret: store.secret.words,
        created_at: store.created_at,
        now,
        taken_at,
    })?;
    let mut rule = None;
    store.copy_each(|parameters, copied| {
        // A change of rule may be under way: what follows is under this one.
        if rule.as_ref() != Some(parameters.limit.rule()) {
            output.rule(&parameters.limit)?;
            rule = Some(parameters.limit.rule().clone());
        }
        output.rows(&copied)?;
        output.slots(&copied)
    })?;
    let (limit, state) = store.copy_overflow();
    output.rule(&limit)?;
    output.shared(&limit.write_state(&state))
}

impl Section {
    /// Time goes on from the snapshot by as much as the calendar says has passed, and never back.
    fn origin<C: Clock>(&self, clock: &C) -> StoreOrigin {
        let elapsed = clock.calendar_now().since(self.head.taken_at);
        let (then, now) = (self.head.now + elapsed, clock.now());
        let shift = i128::from(then.as_micros()) - i128::from(now.as_micros());
        StoreOrigin {
            secret: Secret::new(self.head.secret),
            created_at: self.head.created_at,
            shift: i64::try_from(shift).unwrap_or(0),
        }
    }

    /// Hands every key over to a store, under the store's rule.
    fn pour_into<C: Clock>(&self, store: &MemoryStore<C>) {
        let new = store.rule();
        let now = store.now_for(&new);
        store.reserve(self.keys.iter().map(|(_, keys)| keys.rows()).sum());
        for (limit, keys) in &self.keys {
            let (parameters, old_now) =
                (LimitParameters::new(limit.clone(), self.head.created_at), store.now_for(limit));
            let pour = |key, state: &State| {
                let state = new.take_over_between(limit, state, old_now, now);
                if !new.peek(&state, now, 0).reset_after.is_zero() {
                    store.restore_key(key, state);
                }
            };
            match keys {
                Keys::Rows { width, words } => words.chunks_exact(*width).for_each(|row| {
                    pour(Fingerprint::new(row[0], row[1]), &parameters.unpack(&row[2..]));
                }),
                Keys::Slots(slots) => slots.iter().for_each(|(key, state)| {
                    match in_debt((limit, old_now), (&new, now), state) {
                        None => pour(*key, state),
                        Some(slot) => {
                            store.restore_key(*key, slot.state.clone());
                            store.with(*key, |own, _, _| own.inherit(slot));
                        }
                    }
                }),
                Keys::Shared(state) => match in_debt((limit, old_now), (&new, now), state) {
                    None => {
                        store.restore_overflow(new.take_over_between(limit, state, old_now, now))
                    }
                    Some(slot) => store.with_overflow(|own, _, _| own.inherit(slot)),
                },
            }
        }
    }
}

/// A key that owed more than a state of its rule holds, as it is under the new rule; or one that was waited for, which
/// counts as owed.
fn in_debt(
    (old, old_now): (&Limit, Timestamp),
    (new, now): (&Limit, Timestamp),
    state: &State,
) -> Option<Slot> {
    let mut slot = Slot::of_debtor(old, state, old_now)?;
    // By the same rule nothing has to be worked out anew, and it is exactly as it was.
    if old.rule() != new.rule() {
        slot.change((old, old_now), (new, now), &mut WakeList::default());
    }
    Some(slot)
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            self.contents.sections.iter().map(|section| &*section.head.name).collect();
        f.debug_struct("Snapshot").field("limiters", &names).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::store;

    /// Keys come back in order. Put at the end of rows that are still to grow, each would push its way past
    /// all before it.
    #[test]
    fn restoring_takes_as_much_for_each_of_many_keys_as_of_few() {
        for rule in ["1/h burst 5", "5/h fixed", "5/h sliding"] {
            let effort_per_key = |keys: usize| {
                let builder = || Limiter::builder(rule.parse().unwrap()).max_keys(200_000);
                let (clock, mut bytes) = (ManualClock::new(), Vec::new());
                let limiter = builder().with_clock(clock.clone());
                (0..keys).for_each(|key| assert!(limiter.check(&key).is_allow()));
                Snapshot::write(&mut bytes, [("all", &limiter)]).unwrap();
                let snapshot = Snapshot::read(&bytes).unwrap();
                let mut restored = None;
                let restore = || {
                    restored = Some(snapshot.restore_with_clock("all", builder(), clock.clone()));
                };
                let effort = store::memory::effort(restore);
                assert_eq!(restored.unwrap().keys(), keys);
                effort / keys
            };
            // Some for finding the place and a gap behind it, and one or two for the room.
            let effort = [2_000, 20_000, 200_000].map(effort_per_key);
            assert!(effort.into_iter().all(|effort| effort < 20), "{rule}: {effort:?}");
        }
    }
}
