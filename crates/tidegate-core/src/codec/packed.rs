//! Packed states: at most three words, for stores that keep millions of keys.
//!
//! Invariant Unpacking a packed state gives the same state: nothing is rounded. A state that does not fit
//!           is not packed, and the store keeps it in full.

use crate::rate::Ticks;
use crate::time::Timestamp;

/// A packed state. An algorithm that needs fewer words leaves the others zero.
pub(crate) type PackedWords = [u64; 3];

impl Ticks {
    /// Packs an instant in ticks into one word, counted from `epoch`.
    ///
    /// Zero stands for the beginning of time whatever the epoch is: the state of a bucket that has always been
    /// full. Returns `None` if the instant is too far from the epoch, or before it, which happens only after
    /// the clock has stepped back.
    pub(crate) fn pack(self, instant: u128, epoch: Timestamp) -> Option<PackedWords> {
        if instant == 0 {
            return Some([0; 3]);
        }
        let word = u64::try_from(instant.checked_sub(self.at(epoch))?).ok()?;
        // Zero is taken by the case above, and stores use `u64::MAX` as a mark of their own.
        (1..u64::MAX).contains(&word).then_some([word, 0, 0])
    }

    /// Restores an instant from the word that [`pack`](Self::pack) made with the same epoch.
    pub(crate) fn unpack(self, words: &PackedWords, epoch: Timestamp) -> u128 {
        match words[0] {
            0 => 0,
            word => self.at(epoch) + u128::from(word),
        }
    }
}
