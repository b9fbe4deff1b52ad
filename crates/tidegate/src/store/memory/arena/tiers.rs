//! Arenas for few keys, for more, and for many: all shards' rows are in one of them at nearly all times.
//!
//! A huge page can be made of small ones where every shard uses all of its block. With one arena, for as
//! many keys as there may be, that is so only when there are as many. So there is one for each eighth more,
//! and a shard whose block is full moves on to the next. When one in eight has, the others follow.
//!
//! Always   A later arena has larger blocks. Memory is what is in use: an arena that nobody has a block of has
//!          none, and one whose blocks were left has given it back.

use super::Arena;
use crate::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[derive(Debug)]
pub(crate) struct ArenaTiers {
    arenas: Box<[Arc<Arena>]>,
    /// Where the last shard went that had to grow.
    meeting: AtomicUsize,
    /// Some arena has a page that could be made huge.
    is_any_ripe: Arc<AtomicBool>,
}

/// How many of so many parts the blocks of one arena are of the next one's.
const STEP: (usize, usize) = (8, 9);
/// Blocks of less than this are not worth an arena.
const BLOCK_WORDS_MIN: usize = 1_024;

impl ArenaTiers {
    /// Arenas of so many blocks, which have at least so many words in the last one; none if that is little.
    pub(crate) fn new(blocks: usize, words: usize) -> Option<Self> {
        let is_any_ripe = Arc::new(AtomicBool::new(false));
        let (mut arenas, mut words) = (Vec::new(), words);
        while let Some(arena) = Arena::new(blocks, words, Arc::clone(&is_any_ripe)) {
            words = (arena.block_words() * STEP.0 / STEP.1).min(arena.block_words() - 1);
            arenas.push(Arc::new(arena));
            if words < BLOCK_WORDS_MIN {
                break;
            }
            // A block is some pages, so this may come to as many as the last one has.
            words = Arena::whole_pages_below(words);
        }
        arenas.reverse();
        (!arenas.is_empty()).then(|| Self {
            arenas: arenas.into(),
            meeting: AtomicUsize::new(0),
            is_any_ripe,
        })
    }

    /// The most words that a block has.
    pub(crate) fn words_max(&self) -> usize {
        self.arenas.last().map_or(0, |arena| arena.block_words())
    }

    /// The first arena with blocks of at least so many words.
    fn stage(&self, words: usize) -> Option<usize> {
        let stage = self.arenas.partition_point(|arena| arena.block_words() < words);
        (stage < self.arenas.len()).then_some(stage)
    }

    pub(crate) fn arena(&self, words: usize) -> Option<&Arc<Arena>> {
        self.stage(words).map(|stage| &self.arenas[stage])
    }

    /// How many words a shard should have that needs at least so many: as many as those have who were here
    /// before, if that is not much more.
    pub(crate) fn words_for(&self, least: usize) -> Option<usize> {
        let fitting = self.stage(least)?;
        let meeting = self.meeting.load(Ordering::Relaxed);
        let stage = if meeting == fitting + 1 { meeting } else { fitting };
        self.meeting.store(stage, Ordering::Relaxed);
        Some(self.arenas[stage].block_words())
    }

    /// How many words a shard with so many should have, if a good part of the others has moved on.
    pub(crate) fn words_of_others(&self, words: usize) -> Option<usize> {
        let next = &self.arenas.get(self.stage(words)? + 1)?;
        next.is_popular().then(|| next.block_words())
    }

    /// Makes a huge page of one that has become ripe; not to be done under a lock.
    #[inline]
    pub(crate) fn tend(&self) {
        if self.is_any_ripe.load(Ordering::Relaxed) {
            self.make_huge();
        }
    }

    #[cold]
    fn make_huge(&self) {
        // Whoever makes one ripe says so after it is, and is not overheard.
        self.is_any_ripe.swap(false, Ordering::AcqRel);
        let is_left = self.arenas.iter().fold(false, |is_left, arena| arena.tend() | is_left);
        if is_left {
            self.is_any_ripe.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_is_about_an_eighth_larger_than_the_one_before() {
        for (blocks, words) in [(128, 27_000), (2_048, 28_000), (64, 3_000), (1_024, 30_000)] {
            let arena_tiers = ArenaTiers::new(blocks, words).unwrap();
            let sizes: Vec<usize> =
                arena_tiers.arenas.iter().map(|arena| arena.block_words()).collect();
            assert!(sizes.is_sorted_by(|one, next| one < next), "{sizes:?}");
            assert!(sizes.windows(2).all(|two| two[1] <= two[0] * 9 / 8 + 1_024), "{sizes:?}");
            assert!(arena_tiers.words_max() >= words && arena_tiers.words_max() < words + 1_024);
            for least in [1, sizes[0], sizes[0] + 1, words / 2, words] {
                let found = arena_tiers.arena(least).unwrap().block_words();
                assert!(found >= least && sizes.iter().all(|size| *size >= found || *size < least));
            }
            assert!(arena_tiers.arena(arena_tiers.words_max() + 1).is_none());
        }
        assert!(ArenaTiers::new(4, 1_000).is_none(), "that is little");
    }

    #[test]
    fn shards_meet_and_those_who_are_late_follow() {
        let arena_tiers = ArenaTiers::new(64, 20_000).unwrap();
        let sizes: Vec<usize> =
            arena_tiers.arenas.iter().map(|arena| arena.block_words()).collect();
        let (here, next) = (sizes[4], sizes[5]);
        assert_eq!(arena_tiers.words_for(here), Some(here));
        assert_eq!(arena_tiers.words_for(here + 1), Some(next));
        assert_eq!(
            arena_tiers.words_for(here),
            Some(next),
            "who comes later goes where the others are"
        );
        assert_eq!(arena_tiers.words_for(sizes[3]), Some(sizes[3]), "but not much farther");
        let arena = arena_tiers.arena(next).unwrap();
        let mut taken = Vec::new();
        for index in 0..64 {
            let is_popular = taken.len() > 8;
            assert_eq!(
                arena_tiers.words_of_others(here),
                is_popular.then_some(next),
                "{}",
                taken.len()
            );
            taken.push(Arena::block(arena, index).unwrap());
        }
        drop(taken);
        assert_eq!(arena_tiers.words_of_others(here), None);
        assert_eq!(
            arena_tiers.words_of_others(arena_tiers.words_max()),
            None,
            "there is nothing after the last"
        );
    }
}
