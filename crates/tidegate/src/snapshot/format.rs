//! The binary format of a snapshot.
//!
//! ```text
//! "TIDEGATE" version:u32  then chunks  kind:u8 length:u32 bytes crc:u32, the last of kind End
//!
//! Section  secret, created_at, time by its own clock and by the calendar (µs), and name of a limiter: its
//!          keys follow
//! Rule     the rule of the keys that follow
//! Rows     width:u64, then rows of that many words: two of fingerprint and a packed state
//! Slots    for each key two words of fingerprint, the number of words of its state, and the state
//! Shared   words of state: the shared overflow
//! Attached length:u64 of a name, the name, and bytes of the program
//! ```
//!
//! All numbers are little-endian. The checksum covers kind, length and bytes. A reader that finds an unknown version, an
//! unknown chunk or a wrong checksum rejects the whole snapshot.

use super::error::{Flaw, SnapshotError};
use crate::rule::Rule;
use crate::store::Fingerprint;
use crate::store::memory::ShardCopy;
use std::io::{self, Write};
use tidegate_core::{Limit, State, Timestamp};

const MAGIC: &[u8; 8] = b"TIDEGATE";
const VERSION: u32 = 1;
/// The maximum bytes of keys in a chunk; longer lists are split.
const CHUNK_MAX: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    End = 0,
    Section = 1,
    Rule = 2,
    Rows = 3,
    Slots = 4,
    Shared = 5,
    Attached = 6,
}

const KINDS: [Kind; 7] =
    [Kind::End, Kind::Section, Kind::Rule, Kind::Rows, Kind::Slots, Kind::Shared, Kind::Attached];

/// The header of a limiter, before its keys.
pub(super) struct Head {
    pub(super) name: String,
    pub(super) secret: [u64; 2],
    pub(super) created_at: Timestamp,
    /// The time of its own clock.
    pub(super) now: Timestamp,
    /// The calendar time, read at the same time or after.
    pub(super) taken_at: Timestamp,
}

/// A limiter and its keys, with the rule of each.
pub(super) struct Section {
    pub(super) head: Head,
    pub(super) keys: Vec<(Limit, Keys)>,
}

/// The content of a snapshot.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) sections: Vec<Section>,
    /// The data that the program attached, by name.
    pub(super) attached: Vec<(String, Vec<u8>)>,
}

pub(super) enum Keys {
    Rows {
        width: usize,
        words: Vec<u64>,
    },
    Slots(Vec<(Fingerprint, State)>),
    /// The state of the shared overflow.
    Shared(State),
}

impl Keys {
    /// Returns the number of rows.
    pub(super) fn rows(&self) -> usize {
        match self {
            Self::Rows { width, words } => words.len() / width,
            Self::Slots(_) | Self::Shared(_) => 0,
        }
    }
}

pub(super) struct Writer<W> {
    output: W,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(output: W) -> Self {
        Self { output }
    }

    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.output.write_all(MAGIC)?;
        self.output.write_all(&VERSION.to_le_bytes())
    }

    pub(super) fn section(&mut self, head: &Head) -> io::Result<()> {
        let times = [head.created_at, head.now, head.taken_at].map(Timestamp::as_micros);
        let mut bytes = to_bytes(&head.secret);
        bytes.extend(to_bytes(&times));
        bytes.extend_from_slice(head.name.as_bytes());
        self.chunk(Kind::Section, &bytes)
    }

    pub(super) fn rule(&mut self, limit: &Limit) -> io::Result<()> {
        self.chunk(Kind::Rule, limit.to_string().as_bytes())
    }

    pub(super) fn rows(&mut self, copied: &ShardCopy) -> io::Result<()> {
        let width = copied.words + 2;
        let rows_max = CHUNK_MAX / (width * size_of::<u64>());
        for rows in copied.rows.chunks(rows_max * width) {
            let mut bytes = (width as u64).to_le_bytes().to_vec();
            bytes.extend(to_bytes(rows));
            self.chunk(Kind::Rows, &bytes)?;
        }
        Ok(())
    }

    pub(super) fn slots(&mut self, copied: &ShardCopy) -> io::Result<()> {
        let mut bytes = Vec::new();
        for (key, state) in &copied.slots {
            bytes.extend(to_bytes(&[key.high, key.low, state.len() as u64]));
            bytes.extend(to_bytes(state));
            if bytes.len() >= CHUNK_MAX {
                self.chunk(Kind::Slots, &std::mem::take(&mut bytes))?;
            }
        }
        if bytes.is_empty() { Ok(()) } else { self.chunk(Kind::Slots, &bytes) }
    }

    pub(super) fn shared(&mut self, state: &[u64]) -> io::Result<()> {
        self.chunk(Kind::Shared, &to_bytes(state))
    }

    pub(super) fn attached(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let length = to_bytes(&[name.len() as u64]);
        self.chunk(Kind::Attached, &[&length, name.as_bytes(), bytes].concat())
    }

    pub(super) fn end(&mut self) -> io::Result<()> {
        self.chunk(Kind::End, &[])?;
        self.output.flush()
    }

    fn chunk(&mut self, kind: Kind, bytes: &[u8]) -> io::Result<()> {
        let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "a state is too long");
        let length = u32::try_from(bytes.len()).map_err(too_long)?;
        let mut head = [kind as u8, 0, 0, 0, 0];
        head[1..].copy_from_slice(&length.to_le_bytes());
        self.output.write_all(&head)?;
        self.output.write_all(bytes)?;
        self.output.write_all(&checksum(&head, bytes).to_le_bytes())
    }
}

fn checksum(head: &[u8], bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(head);
    crc.update(bytes);
    crc.finalize()
}

fn to_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Reads a complete snapshot, or fails.
pub(super) fn read(bytes: &[u8]) -> Result<Contents, SnapshotError> {
    let mut reader = Reader { bytes, at: 0 };
    reader.preamble()?;
    let Contents { mut sections, mut attached } = Contents::default();
    let mut rule: Option<Limit> = None;
    loop {
        let (kind, chunk) = reader.chunk()?;
        match (kind, sections.last_mut(), &rule) {
            (Kind::End, ..) => return Ok(Contents { sections, attached }),
            (Kind::Attached, ..) => attached.push(reader.attached(chunk)?),
            (Kind::Section, ..) => {
                sections.push(Section { head: reader.head(chunk)?, keys: Vec::new() });
                rule = None;
            }
            (Kind::Rule, Some(_), _) => rule = Some(reader.rule(chunk)?),
            (Kind::Rows, Some(section), Some(limit)) => {
                section.keys.push((limit.clone(), reader.rows(chunk, limit)?));
            }
            (Kind::Slots, Some(section), Some(limit)) => {
                section.keys.push((limit.clone(), reader.slots(chunk, limit)?));
            }
            (Kind::Shared, Some(section), Some(limit)) => {
                section.keys.push((limit.clone(), reader.shared(chunk, limit)?));
            }
            _ => return Err(reader.damaged()),
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn preamble(&mut self) -> Result<(), SnapshotError> {
        if !self.bytes.starts_with(MAGIC) {
            let is_start = MAGIC.starts_with(self.bytes) && !self.bytes.is_empty();
            let flaw = if is_start { Flaw::CutOff } else { Flaw::Foreign };
            return Err(SnapshotError::new(flaw));
        }
        self.at = MAGIC.len();
        match u32::from_le_bytes(*self.array()?) {
            VERSION => Ok(()),
            version => Err(SnapshotError::new(Flaw::Version(version))),
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], SnapshotError> {
        let cut_off = || SnapshotError::new(Flaw::CutOff);
        let end = self.at.checked_add(length).ok_or_else(cut_off)?;
        let taken = self.bytes.get(self.at..end).ok_or_else(cut_off)?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], SnapshotError> {
        let damaged = self.damaged();
        self.take(N)?.first_chunk().ok_or(damaged)
    }

    fn chunk(&mut self) -> Result<(Kind, &'a [u8]), SnapshotError> {
        let head: &[u8; 5] = self.array()?;
        let [kind, length @ ..] = *head;
        let length = u32::from_le_bytes(length) as usize;
        let bytes = self.take(length)?;
        if u32::from_le_bytes(*self.array()?) != checksum(head, bytes) {
            return Err(self.damaged());
        }
        let kind = KINDS.get(usize::from(kind)).ok_or_else(|| self.damaged())?;
        Ok((*kind, bytes))
    }

    fn words(&self, bytes: &[u8]) -> Result<Box<[u64]>, SnapshotError> {
        let (words, []) = bytes.as_chunks() else { return Err(self.damaged()) };
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    fn head(&self, bytes: &[u8]) -> Result<Head, SnapshotError> {
        let (numbers, name) = bytes.split_at_checked(40).ok_or_else(|| self.damaged())?;
        let [k0, k1, created_at, now, taken_at] = *self.words(numbers)? else {
            return Err(self.damaged());
        };
        Ok(Head {
            name: String::from_utf8(name.to_vec()).map_err(|_| self.damaged())?,
            secret: [k0, k1],
            created_at: Timestamp::from_micros(created_at),
            now: Timestamp::from_micros(now),
            taken_at: Timestamp::from_micros(taken_at),
        })
    }

    fn rule(&self, bytes: &[u8]) -> Result<Limit, SnapshotError> {
        let text = std::str::from_utf8(bytes).map_err(|_| self.damaged())?;
        let rule = text.parse::<Rule>().map_err(|error| {
            SnapshotError::new(Flaw::Rule { text: text.to_owned(), error: Box::new(error) })
        })?;
        Ok(rule.limit)
    }

    fn rows(&self, bytes: &[u8], limit: &Limit) -> Result<Keys, SnapshotError> {
        let words = self.words(bytes)?;
        let (width, words) = words.split_first().ok_or_else(|| self.damaged())?;
        let is_right = *width == limit.packed_words() as u64 + 2 && limit.packed_words() > 0;
        if !is_right || !(words.len() as u64).is_multiple_of(*width) {
            return Err(self.damaged());
        }
        Ok(Keys::Rows { width: limit.packed_words() + 2, words: words.to_vec() })
    }

    fn slots(&self, bytes: &[u8], limit: &Limit) -> Result<Keys, SnapshotError> {
        let words = self.words(bytes)?;
        let (mut rest, mut slots) = (&*words, Vec::new());
        while let Some((&[high, low, length], after)) = rest.split_first_chunk() {
            let length = usize::try_from(length).map_err(|_| self.damaged())?;
            let (state, after) = after.split_at_checked(length).ok_or_else(|| self.damaged())?;
            let wrong = || SnapshotError::new(Flaw::State { at: self.at });
            slots.push((Fingerprint::new(high, low), limit.read_state(state).ok_or_else(wrong)?));
            rest = after;
        }
        if rest.is_empty() { Ok(Keys::Slots(slots)) } else { Err(self.damaged()) }
    }

    fn shared(&self, bytes: &[u8], limit: &Limit) -> Result<Keys, SnapshotError> {
        let state = limit.read_state(&self.words(bytes)?);
        state.map(Keys::Shared).ok_or_else(|| SnapshotError::new(Flaw::State { at: self.at }))
    }

    fn attached(&self, bytes: &[u8]) -> Result<(String, Vec<u8>), SnapshotError> {
        let (length, rest) = bytes.split_first_chunk().ok_or_else(|| self.damaged())?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| self.damaged())?;
        let (name, bytes) = rest.split_at_checked(length).ok_or_else(|| self.damaged())?;
        let name = String::from_utf8(name.to_vec()).map_err(|_| self.damaged())?;
        Ok((name, bytes.to_vec()))
    }

    fn damaged(&self) -> SnapshotError {
        SnapshotError::new(Flaw::Damaged { at: self.at })
    }
}
