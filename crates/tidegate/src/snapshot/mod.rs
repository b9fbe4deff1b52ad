//! Snapshots: the state of limiters in a file, so that debts survive a restart.
//!
//! Always   Each key is written as it was at one moment, while other keys are being decided. After a restore, no key has more
//!          than it had at the snapshot plus what the time since then refilled. An incomplete file is never used.
//! File     `format.rs` has the format, `file.rs` the atomic replacement of the file.

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

/// The keys of limiters and their debts, at the time when the snapshot was taken.
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
/// assert!(limiter.check("alice").is_deny(), "all five are used");
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Snapshot {
    contents: Contents,
}

/// Bytes that a program stores in a snapshot in addition to its limiters, and their name.
pub type Attached = (String, Vec<u8>);

/// The result of loading a snapshot; see [`Snapshot::load`].
///
/// ```
/// use tidegate::snapshot::Snapshot;
///
/// let loaded = Snapshot::load("/nowhere/limits.snapshot");
/// assert!(loaded.snapshot.is_empty());
/// assert!(loaded.problems.is_empty(), "a missing file is not a problem");
/// ```
#[derive(Debug)]
#[must_use = "the problems should be logged"]
pub struct Loaded {
    /// The newest complete snapshot; empty if there is none.
    pub snapshot: Snapshot,
    /// The errors of the other files. Log them.
    pub problems: Vec<SnapshotError>,
}

impl Snapshot {
    /// Writes the state of these limiters to a file, each under a name. The file is replaced atomically, also if the machine
    /// stops meanwhile, and the one before it is kept as `<file>.previous`. The file contains the secrets of fingerprints, so
    /// only its owner can read it.
    ///
    /// # Errors
    /// The file could not be written.
    pub fn save<'a, C: Clock>(
        path: impl AsRef<Path>,
        limiters: impl IntoIterator<Item = (&'a str, &'a Limiter<C>)>,
    ) -> io::Result<()> {
        Self::save_with(path, limiters, Vec::new)
    }

    /// Writes a snapshot with additional data, such as [records](crate::Permit::record) of permits. `attach` is called after the
    /// limiters were written, so what it returns is not older than they are.
    ///
    /// # Errors
    /// The file could not be written.
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

    /// Writes a snapshot to any writer.
    ///
    /// # Errors
    /// The writer failed.
    pub fn write<'a, C: Clock>(
        output: impl Write,
        limiters: impl IntoIterator<Item = (&'a str, &'a Limiter<C>)>,
    ) -> io::Result<()> {
        Self::write_with(output, limiters, Vec::new)
    }

    /// Writes a snapshot with additional data to any writer; see [`save_with`](Self::save_with).
    ///
    /// # Errors
    /// The writer failed.
    pub fn write_with<'a, C: Clock>(
        output: impl Write,
        limiters: impl IntoIterator<Item = (&'a str, &'a Limiter<C>)>,
        attach: impl FnOnce() -> Vec<Attached>,
    ) -> io::Result<()> {
        let mut output = Writer::new(output);
        output.begin()?;
        for (name, limiter) in limiters {
            write_limiter(&mut output, name, &limiter.store)?;
        }
        for (name, bytes) in attach() {
            output.attached(&name, &bytes)?;
        }
        output.end()
    }

    /// Returns the files that [`save`](Self::save) replaces or removes: the snapshot, the previous one, and the rest of an
    /// interrupted write. For programs that have to make sure that none of them is another file.
    ///
    /// ```
    /// # use tidegate::snapshot::Snapshot;
    /// let files = Snapshot::files("state");
    /// assert_eq!(files.map(|file| file.display().to_string()), ["state", "state.previous", "state.part"]);
    /// ```
    pub fn files(path: impl AsRef<Path>) -> [PathBuf; 3] {
        file::all(path.as_ref())
    }

    /// Reads the newest complete snapshot: the file, or else the previous one, or else an empty one. It does not fail, because a
    /// process must be able to start; errors are in [`Loaded::problems`].
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

    /// Reads a snapshot from bytes that [`write`](Self::write) wrote.
    ///
    /// # Errors
    /// The bytes are no snapshot, are incomplete, or are of an unknown version.
    pub fn read(bytes: &[u8]) -> Result<Self, SnapshotError> {
        Ok(Self { contents: format::read(bytes)? })
    }

    /// Returns whether the snapshot contains no limiter.
    pub fn is_empty(&self) -> bool {
        self.contents.sections.is_empty()
    }

    /// Returns the names of the limiters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.contents.sections.iter().map(|section| section.head.name.as_str())
    }

    /// Returns the data that was [attached](Self::save_with) under this name.
    pub fn attached(&self, name: &str) -> Option<&[u8]> {
        let found = self.contents.attached.iter().find(|(known, _)| known == name);
        found.map(|(_, bytes)| bytes.as_slice())
    }

    /// Makes a limiter with the state of this name, or a new one if the snapshot has none. It uses the machine's clock. If the
    /// rule has changed, usage carries over as in [`set_rule`](Limiter::set_rule).
    pub fn restore(&self, name: &str, builder: Builder) -> Limiter {
        self.restore_with_clock(name, builder, crate::SystemClock::new())
    }

    /// Makes a limiter with the state of this name, or a new one, that uses `clock`.
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
            section.restore_into(&store);
            store
        })
    }
}

fn write_limiter<W: Write, C: Clock>(
    output: &mut Writer<W>,
    name: &str,
    store: &MemoryStore<C>,
) -> io::Result<()> {
    // The limiter's clock is read before the calendar, so that the time between the readings is not counted twice.
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
        // The rule may change meanwhile: the rows that follow are under this rule.
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
    /// Continues the time of the snapshot, advanced by the calendar time that has passed since, and never back.
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

    /// Restores every key in a store, under the store's rule.
    fn restore_into<C: Clock>(&self, store: &MemoryStore<C>) {
        let new = store.rule();
        let now = store.now_for(&new);
        store.reserve(self.keys.iter().map(|(_, keys)| keys.rows()).sum());
        for (limit, keys) in &self.keys {
            let (parameters, old_now) =
                (LimitParameters::new(limit.clone(), self.head.created_at), store.now_for(limit));
            let restore = |key, state: &State| {
                let state = new.take_over_between(limit, state, old_now, now);
                if !new.peek(&state, now, 0).reset_after.is_zero() {
                    store.restore_key(key, state);
                }
            };
            match keys {
                Keys::Rows { width, words } => words.chunks_exact(*width).for_each(|row| {
                    restore(Fingerprint::new(row[0], row[1]), &parameters.unpack(&row[2..]));
                }),
                Keys::Slots(slots) => slots.iter().for_each(|(key, state)| {
                    match in_debt((limit, old_now), (&new, now), state) {
                        None => restore(*key, state),
                        Some(slot) => {
                            store.restore_key(*key, slot.state.clone());
                            store.with(*key, |own, _, _| own.inherit(slot));
                        }
                    }
                }),
                Keys::Shared(state) => match in_debt((limit, old_now), (&new, now), state) {
                    None => {
                        store.restore_overflow(new.take_over_between(limit, state, old_now, now));
                    }
                    Some(slot) => store.with_overflow(|own, _, _| own.inherit(slot)),
                },
            }
        }
    }
}

/// Returns the slot of a key whose debt exceeds what a state can hold, under the new rule. Waiters count as debt.
fn in_debt(
    (old, old_now): (&Limit, Timestamp),
    (new, now): (&Limit, Timestamp),
    state: &State,
) -> Option<Slot> {
    let mut slot = Slot::of_debtor(old, state, old_now)?;
    // Under the same rule nothing changes.
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

    /// Keys are restored in order. If the rows still had to grow, each key at their end would move all before it.
    #[test]
    fn the_effort_per_restored_key_does_not_grow_with_their_number() {
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
            // A few steps to find the place and a gap behind it, and one or two for growth.
            let effort = [2_000, 20_000, 200_000].map(effort_per_key);
            assert!(effort.into_iter().all(|effort| effort < 20), "{rule}: {effort:?}");
        }
    }
}
