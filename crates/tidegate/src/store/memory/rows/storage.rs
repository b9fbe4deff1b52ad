//! The memory of a shard's rows.
//!
//! A small array is a `Vec`. A larger one is an anonymous mapping of its own, so that the system gets the memory back
//! when it is dropped: after an attack, the heap would keep most of it as holes between live allocations.

use memmap2::MmapMut;

#[derive(Debug)]
pub(super) enum RowStorage {
    Heap(Vec<u64>),
    Mapped(MmapMut),
}

/// From this size on, rows are in a mapping, which is a whole number of pages and costs a system call.
const MAPPED_BYTES_MIN: usize = 16 * 1_024;

impl RowStorage {
    pub(super) const EMPTY: Self = Self::Heap(Vec::new());

    pub(super) fn zeroed(words: usize) -> Self {
        let bytes = words * size_of::<u64>();
        if bytes >= MAPPED_BYTES_MIN
            && let Ok(mapped) = MmapMut::map_anon(bytes)
        {
            return Self::Mapped(mapped);
        }
        // Also if the system allows no more mappings.
        Self::Heap(vec![0; words])
    }

    #[inline]
    pub(super) fn words(&self) -> &[u64] {
        match self {
            Self::Heap(words) => words,
            Self::Mapped(mapped) => bytemuck::cast_slice(mapped),
        }
    }

    #[inline]
    pub(super) fn words_mut(&mut self) -> &mut [u64] {
        match self {
            Self::Heap(words) => words,
            Self::Mapped(mapped) => bytemuck::cast_slice_mut(mapped),
        }
    }
}
