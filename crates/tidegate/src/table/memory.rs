//! Where rows lie: a block of zeroed words that goes back to the system when it is dropped.
//!
//! A large block is a mapping of its own, not a piece of the heap: after an attack the heap would keep
//! most of it, as holes between what is still in use.

use memmap2::MmapMut;

#[derive(Debug)]
pub(crate) enum Memory {
    Heap(Vec<u64>),
    Mapped(MmapMut),
}

/// Blocks from here on are mapped. Smaller ones would waste a good part of their last page.
const MAPPED_MIN: usize = 64 * 1_024;

impl Memory {
    pub(crate) fn zeroed(words: usize) -> Self {
        let bytes = words * size_of::<u64>();
        if bytes >= MAPPED_MIN
            && let Ok(block) = MmapMut::map_anon(bytes)
        {
            return Self::Mapped(block);
        }
        Self::Heap(vec![0; words])
    }

    #[inline]
    pub(crate) fn words(&self) -> &[u64] {
        match self {
            Self::Heap(words) => words,
            Self::Mapped(block) => bytemuck::cast_slice(block),
        }
    }

    #[inline]
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        match self {
            Self::Heap(words) => words,
            Self::Mapped(block) => bytemuck::cast_slice_mut(block),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_blocks_are_zeroed_and_can_be_written() {
        for words in [0, 1, 1_000, MAPPED_MIN / 8, 1_000_000] {
            let mut memory = Memory::zeroed(words);
            assert_eq!(memory.words().len(), words);
            assert!(memory.words().iter().all(|word| *word == 0));
            memory.words_mut().fill(7);
            assert!(memory.words().iter().all(|word| *word == 7));
        }
        assert!(matches!(Memory::zeroed(MAPPED_MIN / 8), Memory::Mapped(_)));
    }
}
