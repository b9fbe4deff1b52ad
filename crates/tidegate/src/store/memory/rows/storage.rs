//! Where rows lie: zeroed words that can become more and fewer, and that go back to the system.
//!
//! Few words are a piece of the heap. Many are a block of an arena, see [`ArenaTiers`]; or, where there is none or
//! all are too small, a mapping of their own. Not the heap: after an attack it would keep most of them, as
//! holes between what is still in use.

use super::super::arena::{Arena, ArenaTiers, Block, small_page};
use crate::sync::Arc;
use memmap2::MmapMut;

/// A shard's place in the arenas, if there are any.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArenaSlot {
    pub(crate) arena_tiers: Option<Arc<ArenaTiers>>,
    pub(crate) index: usize,
}

#[derive(Debug)]
pub(crate) enum RowStorage {
    Heap(Vec<u64>),
    Mapped(MmapMut),
    /// A block, and how many of its words are in use.
    Block(Block, usize),
}

/// Pieces from here on are no longer on the heap, but on the arena_slot: there, what is wasted is part of a
/// page.
const HEAP_MAX: usize = 4 * 1_024;
/// The same where there is no arena_slot: a mapping of their own is slower to come by.
const HEAP_MAX_WITHOUT_PLOT: usize = 64 * 1_024;

impl ArenaSlot {
    /// The most words that there are room for here.
    pub(crate) fn words(&self) -> usize {
        self.arena_tiers.as_ref().map_or(0, |arena_tiers| arena_tiers.words_max())
    }

    /// How many words to have if at least so many are needed, where that is on the arena_slot.
    pub(crate) fn words_for(&self, least: usize) -> Option<usize> {
        if least < self.heap_max() { None } else { self.arena_tiers.as_ref()?.words_for(least) }
    }

    /// How many words to have instead of so many, where the others have as many.
    pub(crate) fn words_of_others(&self, words: usize) -> Option<usize> {
        if words < self.heap_max() {
            None
        } else {
            self.arena_tiers.as_ref()?.words_of_others(words)
        }
    }

    /// Pieces from this many words on are no longer on the heap.
    fn heap_max(&self) -> usize {
        let bytes = if self.arena_tiers.is_some() {
            HEAP_MAX.max(small_page())
        } else {
            HEAP_MAX_WITHOUT_PLOT
        };
        bytes / size_of::<u64>()
    }

    fn arena(&self, words: usize) -> Option<&Arc<Arena>> {
        self.arena_tiers.as_ref()?.arena(words)
    }
}

impl RowStorage {
    pub(crate) const NONE: Self = Self::Heap(Vec::new());

    /// Makes it so many words: new ones are zero, and those beyond are gone.
    pub(crate) fn resize(&mut self, words: usize, arena_slot: &ArenaSlot) {
        match self {
            Self::Heap(heap) if words <= heap.len() => {
                // A new piece: what is left of the old one would stay where it is, and keep the heap from
                // shrinking.
                *heap = heap[..words].to_vec();
            }
            Self::Heap(heap) if words < arena_slot.heap_max() => {
                heap.reserve_exact(words - heap.len());
                heap.resize(words, 0);
            }
            Self::Block(block, len)
                if words >= arena_slot.heap_max() / 2
                    && arena_slot.arena(words).is_some_and(|arena| block.is_of(arena)) =>
            {
                if words < *len {
                    block.clear_from(words);
                }
                *len = words;
            }
            _ => self.move_to(Self::new(words, arena_slot)),
        }
        if let Self::Block(block, len) = self
            && *len * 16 > block.words_max() * 15
        {
            block.fill();
        }
    }

    fn new(words: usize, arena_slot: &ArenaSlot) -> Self {
        if words < arena_slot.heap_max() {
            return Self::Heap(vec![0; words]);
        }
        if let Some(arena) = arena_slot.arena(words)
            && let Some(block) = Arena::block(arena, arena_slot.index)
        {
            return Self::Block(block, words);
        }
        MmapMut::map_anon(words * size_of::<u64>())
            .map_or_else(|_| Self::Heap(vec![0; words]), Self::Mapped)
    }

    fn move_to(&mut self, mut new: Self) {
        let kept = self.words().len().min(new.words().len());
        new.words_mut()[..kept].copy_from_slice(&self.words()[..kept]);
        *self = new;
    }

    #[inline]
    pub(crate) fn words(&self) -> &[u64] {
        match self {
            Self::Heap(words) => words,
            Self::Mapped(mapped) => bytemuck::cast_slice(mapped),
            Self::Block(block, len) => block.words(*len),
        }
    }

    #[inline]
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        match self {
            Self::Heap(words) => words,
            Self::Mapped(mapped) => bytemuck::cast_slice_mut(mapped),
            Self::Block(block, len) => block.words_mut(*len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stays_and_what_is_new_is_zero_wherever_it_lies() {
        let arena_tiers = ArenaTiers::new(16, 300 * 1_024 / 8).map(Arc::new);
        let on_plot = ArenaSlot { arena_tiers, index: 3 };
        for arena_slot in [ArenaSlot::default(), on_plot] {
            let mut memory = RowStorage::NONE;
            let mut len = 0;
            // Up and down through the heap, the arena_slot and beyond, by small and large steps.
            for kib in [
                1, 2, 15, 16, 60, 64, 200, 210, 300, 301, 900, 290, 100, 40, 14, 9, 3, 2, 1, 0,
                299, 80, 299,
            ] {
                let words = kib * 128;
                memory.resize(words, &arena_slot);
                assert_eq!(memory.words().len(), words);
                let kept = len.min(words);
                assert!(memory.words()[..kept].iter().zip(1..).all(|(word, n)| *word == n));
                assert!(memory.words()[kept..].iter().all(|word| *word == 0), "{kib} KiB");
                for (word, n) in memory.words_mut().iter_mut().zip(1..) {
                    *word = n;
                }
                len = words;
            }
        }
    }

    #[test]
    fn little_is_on_the_heap_and_much_is_not() {
        let is_heap =
            |words| matches!(RowStorage::new(words, &ArenaSlot::default()), RowStorage::Heap(_));
        assert!(is_heap(HEAP_MAX_WITHOUT_PLOT / 8 - 1));
        assert!(!is_heap(HEAP_MAX_WITHOUT_PLOT / 8));
    }
}
