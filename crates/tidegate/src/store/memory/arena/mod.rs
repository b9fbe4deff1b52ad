//! One stretch of memory for the rows of all shards, so that it can lie in huge pages.
//!
//! A decision about one of a million keys waits for its row; with pages of 4 KiB it waits as long again
//! for the processor to find out where the page is. A shard is too small for a page of 2 MiB, and
//! shards are not made larger, because a lock is not to be held for long. So the shards' rows lie side by
//! side. They come in small pages, as they fill up; where they have filled nearly all of a huge page's worth,
//! the kernel is asked to make one of it. What a few keys take is thus as little as before.
//!
//! This module has `unsafe` code: it hands out disjoint parts of one mapping, and tells the kernel what
//! to do with it. docs/decisions/0014-one-arena-in-huge-pages.md has the numbers.
//!
//! Always   A block is handed out to one owner at a time. A block that nobody has is all zeros, and none
//!          of it is in memory, unless as a part of a huge page.

mod tiers;

pub(crate) use tiers::ArenaTiers;

use crate::sync::Arc;
use memmap2::{MmapMut, MmapOptions};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub(crate) struct Arena {
    blocks: usize,
    block_words: usize,
    /// Mapped when the first block is needed; `None` if the system would not.
    mapping: OnceLock<Option<Mapping>>,
    /// Somebody is to look whether a page has become ripe, here or in another arena.
    alarm: Arc<AtomicBool>,
    /// How many blocks are handed out.
    taken: AtomicUsize,
}

struct Mapping {
    /// Never looked at: everything goes through `start`. Unmapped when it is dropped.
    _map: MmapMut,
    /// The first block, at the beginning of a huge page.
    start: AtomicPtr<u64>,
    is_taken: Box<[AtomicBool]>,
    /// How many bytes of each huge page are in use.
    used: Box<[AtomicU64]>,
    /// Some page is in use all over, and has not been made huge.
    is_any_ripe: AtomicBool,
    /// GateGuard while pages are counted and the kernel is told of it: in the other order it would be told the
    /// wrong thing.
    telling: Mutex<()>,
    /// GateGuard while a block is handed out, and while what nobody has is given back. Not the same as the one
    /// above, which is held while the kernel copies a huge page together.
    handing: Mutex<()>,
}

/// One shard's part. Dropping it gives the memory back.
pub(crate) struct Block {
    arena: Arc<Arena>,
    index: usize,
    start: AtomicPtr<u64>,
    /// As many as the arena says: here, because it is asked for with every decision.
    words_max: usize,
    /// Whether the owner has said that it uses all of it.
    is_whole: bool,
}

/// As x86-64 and most of arm64 have it. Where it is another, nothing is lost but speed.
const HUGE_PAGE: usize = 2 << 20;
const WORD: usize = size_of::<u64>();
/// For less than this the heap will do.
const BYTES_MIN: usize = 1 << 20;
/// So much of a huge page has to be in use for it to be made. Not all: among a hundred shards there are one or
/// two with more keys than the others, and their blocks are in another arena.
const RIPE: u64 = (HUGE_PAGE / 16 * 15) as u64;
/// One block in so many is a good part.
const POPULAR: usize = 8;
/// Beside how much is in use: the page has been made huge.
const MADE: u64 = 1 << 63;

impl Arena {
    /// Capacity for so many blocks of at least so many words; none if that is little, or more than there
    /// can be.
    pub(crate) fn new(blocks: usize, block_words: usize, alarm: Arc<AtomicBool>) -> Option<Self> {
        let block_words = block_words.checked_next_multiple_of(small_page() / WORD)?;
        let bytes = block_words.checked_mul(WORD)?.checked_mul(blocks)?;
        let is_worth_it = cfg!(target_os = "linux") && bytes >= BYTES_MIN;
        let is_possible = isize::try_from(bytes.checked_add(2 * HUGE_PAGE)?).is_ok();
        let (mapping, taken) = (OnceLock::new(), AtomicUsize::new(0));
        (is_worth_it && is_possible).then_some(Self { blocks, block_words, mapping, alarm, taken })
    }

    /// So many words, or fewer, that are whole pages.
    pub(super) fn whole_pages_below(words: usize) -> usize {
        words - words % (small_page() / WORD)
    }

    /// Whether a good part of the blocks is handed out.
    pub(super) fn is_popular(&self) -> bool {
        self.taken.load(Ordering::Relaxed) * POPULAR > self.blocks
    }

    pub(crate) fn block_words(&self) -> usize {
        self.block_words
    }

    fn mapping(&self) -> Option<&Mapping> {
        let bytes = self.blocks * self.block_words * WORD;
        self.mapping.get_or_init(|| Mapping::map(self.blocks, bytes)).as_ref()
    }

    /// Hands out a block, all zeros; none if somebody has it, or if there is no memory.
    // Not a method: loom's `Arc` has none.
    pub(crate) fn block(arena: &Arc<Self>, index: usize) -> Option<Block> {
        let mapping = arena.mapping()?;
        // Nobody gives it back meanwhile.
        let handing = lock(&mapping.handing);
        if mapping.is_taken[index].swap(true, Ordering::Acquire) {
            return None;
        }
        drop(handing);
        arena.taken.fetch_add(1, Ordering::Relaxed);
        let start = mapping.address(index * arena.block_words * WORD).cast();
        let (arena, start) = (Arc::clone(arena), AtomicPtr::new(start));
        let words_max = arena.block_words;
        Some(Block { arena, index, start, words_max, is_whole: false })
    }

    /// Makes a huge page of one that has become ripe. It copies 2 MiB; not to be done under a lock. Tells
    /// whether there may be another one.
    pub(crate) fn tend(&self) -> bool {
        let Some(Some(mapping)) = self.mapping.get() else { return false };
        if mapping.is_any_ripe.load(Ordering::Acquire) {
            mapping.make_huge();
        }
        mapping.is_any_ripe.load(Ordering::Relaxed)
    }
}

impl Mapping {
    fn map(blocks: usize, bytes: usize) -> Option<Self> {
        if !can_give_back() {
            return None;
        }
        // Nobody has to promise memory for what may never be used. It begins in the first huge page and ends
        // before the end of the last.
        let mut map =
            MmapOptions::new().len(bytes + 2 * HUGE_PAGE).no_reserve_swap().map_anon().ok()?;
        let before = map.as_ptr().align_offset(HUGE_PAGE);
        let start: &mut [u64] = bytemuck::cast_slice_mut(&mut map[before..before + bytes]);
        let start = AtomicPtr::new(start.as_mut_ptr());
        prefer(Pages::Small, start.load(Ordering::Relaxed).cast(), bytes);
        let pages = bytes.div_ceil(HUGE_PAGE);
        Some(Self {
            _map: map,
            start,
            is_taken: (0..blocks).map(|_| AtomicBool::new(false)).collect(),
            used: (0..pages).map(|_| AtomicU64::new(0)).collect(),
            is_any_ripe: AtomicBool::new(false),
            telling: Mutex::new(()),
            handing: Mutex::new(()),
        })
    }

    /// Where a byte lies.
    fn address(&self, offset: usize) -> *mut u8 {
        self.start.load(Ordering::Relaxed).cast::<u8>().wrapping_add(offset)
    }

    /// The huge pages that these bytes lie in, and how many of them in each.
    fn pages(&self, from: usize, to: usize) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let pages = from / HUGE_PAGE..to.div_ceil(HUGE_PAGE);
        pages.map(move |page| {
            let (first, end) = (page * HUGE_PAGE, (page + 1) * HUGE_PAGE);
            (&self.used[page], (to.min(end) - from.max(first)) as u64)
        })
    }

    #[cold]
    fn make_huge(&self) {
        // Who is not alone leaves it to the others.
        let Ok(_telling) = self.telling.try_lock() else { return };
        let is_ripe = |used: &AtomicU64| (RIPE..MADE).contains(&used.load(Ordering::Relaxed));
        let ripe = |(page, used)| is_ripe(used).then_some((page, used));
        let mut all_ripe = self.used.iter().enumerate().filter_map(ripe);
        if let Some((page, used)) = all_ripe.next() {
            used.fetch_or(MADE, Ordering::Relaxed);
            prefer(Pages::Huge, self.address(page * HUGE_PAGE), HUGE_PAGE);
        }
        // Whoever fills another page meanwhile says so after it has counted, and is not overheard.
        self.is_any_ripe.swap(false, Ordering::AcqRel);
        if self.used.iter().any(is_ripe) {
            self.is_any_ripe.store(true, Ordering::Release);
        }
    }

    /// Makes small pages again of the huge ones that these bytes lie in: some are to be given back. What
    /// nobody has of them goes at once, because it came into memory with the rest.
    fn retreat(&self, from: usize, to: usize, block: usize) {
        let _telling = lock(&self.telling);
        let first = from / HUGE_PAGE;
        for (page, (used, bytes)) in (first..).zip(self.pages(from, to)) {
            let less = |used: u64| Some((used & !MADE) - bytes);
            let before = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            if before.is_ok_and(|before| before & MADE == 0) {
                continue;
            }
            let (start, end) = (page * HUGE_PAGE, (page + 1) * HUGE_PAGE);
            prefer(Pages::Small, self.address(start), HUGE_PAGE);
            let blocks = start / block..end.div_ceil(block).min(self.is_taken.len());
            let _handing = lock(&self.handing);
            for index in blocks.filter(|index| !self.is_taken[*index].load(Ordering::Acquire)) {
                let (start, end) = (start.max(index * block), end.min((index + 1) * block));
                give_back(self.address(start), end - start);
            }
        }
    }
}

impl Block {
    fn offset(&self) -> usize {
        self.index * self.arena.block_words * WORD
    }

    fn mapping(&self) -> &Mapping {
        self.arena.mapping().expect("it is in it")
    }

    #[inline]
    fn start(&self) -> *mut u64 {
        self.start.load(Ordering::Relaxed)
    }

    /// The first so many words.
    #[inline]
    pub(crate) fn words(&self, len: usize) -> &[u64] {
        assert!(len <= self.words_max, "a block has no more words");
        // SAFETY: the block lies in the mapping, which lives as long as the arena that this one holds;
        // it is handed out to this one only, and whoever changes it has it borrowed mutably. A mapping
        // is zeroed, and any bits are a u64; the mapping begins at a page, so it is aligned.
        #[expect(unsafe_code, reason = "part of a mapping, see above")]
        unsafe {
            std::slice::from_raw_parts(self.start(), len)
        }
    }

    /// The first so many words, to be changed.
    #[inline]
    pub(crate) fn words_mut(&mut self, len: usize) -> &mut [u64] {
        assert!(len <= self.words_max, "a block has no more words");
        // SAFETY: as above, and this one is borrowed mutably.
        #[expect(unsafe_code, reason = "part of a mapping, see above")]
        unsafe {
            std::slice::from_raw_parts_mut(self.start(), len)
        }
    }

    /// Says that all of the block is in use from now on: then it may become part of a huge page.
    pub(crate) fn fill(&mut self) {
        if std::mem::replace(&mut self.is_whole, true) {
            return;
        }
        let (mapping, from) = (self.mapping(), self.offset());
        // No lock: whoever tells the kernel of the page meanwhile may do so, all that is in use is in use.
        for (used, bytes) in mapping.pages(from, from + self.arena.block_words * WORD) {
            let before = used.fetch_add(bytes, Ordering::Relaxed);
            if before < RIPE && before + bytes >= RIPE {
                mapping.is_any_ripe.store(true, Ordering::Release);
                self.arena.alarm.store(true, Ordering::Release);
            }
        }
    }

    /// How many words there are.
    pub(crate) fn words_max(&self) -> usize {
        self.words_max
    }

    /// Whether it is a part of this arena.
    pub(crate) fn is_of(&self, arena: &Arc<Arena>) -> bool {
        Arc::ptr_eq(&self.arena, arena)
    }

    /// Gives back all but the first so many words, which are zero from then on.
    pub(crate) fn clear_from(&mut self, len: usize) {
        let (from, to) = (self.offset(), self.offset() + self.arena.block_words * WORD);
        if std::mem::replace(&mut self.is_whole, false) {
            self.mapping().retreat(from, to, to - from);
        }
        let kept = (from + len * WORD).next_multiple_of(small_page()).min(to);
        let kept_words = (kept - from) / WORD;
        self.words_mut(kept_words)[len..].fill(0);
        give_back(self.mapping().address(kept), to - kept);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.clear_from(0);
        self.arena.taken.fetch_sub(1, Ordering::Relaxed);
        self.mapping().is_taken[self.index].store(false, Ordering::Release);
    }
}

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The system's page: 4 KiB on x86-64, up to 64 KiB elsewhere.
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) fn small_page() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        // SAFETY: it only requests.
        #[expect(unsafe_code, reason = "there is no safe way to ask")]
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(64 << 10)
    })
}

#[cfg(not(all(target_os = "linux", not(miri))))]
pub(super) fn small_page() -> usize {
    64 << 10
}

/// Whether what is given back is gone: not where all memory is locked, where a mapping is memory at once.
fn can_give_back() -> bool {
    let Ok(mut page) = MmapMut::map_anon(small_page()) else { return false };
    page[0] = 1;
    give_back(page.as_mut_ptr(), page.len()) && page[0] == 0
}

/// Gives whole pages back to the system. They are zero when they are next looked at.
fn give_back(start: *mut u8, bytes: usize) -> bool {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: the caller has this part of the mapping to itself, and for words zero is as good as
        // any other value.
        #[expect(unsafe_code, reason = "there is no safe way to say it")]
        let result = unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED) };
        if result == 0 {
            return true;
        }
    }
    // Memory that has been locked meanwhile, for one, cannot be given back.
    // SAFETY: as above.
    #[expect(unsafe_code, reason = "there is no safe way to say it")]
    unsafe {
        start.write_bytes(0, bytes);
    }
    cfg!(miri)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pages {
    Small,
    Huge,
}

/// Tells the kernel which pages are wanted here from now on; if huge ones, that they are wanted now.
///
/// Small ones have to be asked for, because where huge ones are the rule, the first word that is written
/// would take all of one. An old kernel (before 6.1) makes huge ones later, and one that has none never.
fn prefer(pages: Pages, start: *mut u8, bytes: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let wish = match pages {
            Pages::Small => libc::MADV_NOHUGEPAGE,
            Pages::Huge => libc::MADV_HUGEPAGE,
        };
        // SAFETY: this changes nothing that anybody can read or write there.
        #[expect(unsafe_code, reason = "there is no safe way to say it")]
        unsafe {
            libc::madvise(start.cast(), bytes, wish);
            if pages == Pages::Huge {
                libc::madvise(start.cast(), bytes, MADV_COLLAPSE);
            }
        }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (pages, start, bytes);
}

/// Not every C library has a name for it yet.
#[cfg(all(target_os = "linux", not(miri)))]
const MADV_COLLAPSE: libc::c_int = 25;

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("blocks", &self.blocks).finish_non_exhaustive()
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("index", &self.index).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: usize = 300 * 1_024 / WORD;

    fn new(blocks: usize, words: usize) -> Option<Arena> {
        Arena::new(blocks, words, Arc::default())
    }

    fn arena() -> Arc<Arena> {
        Arc::new(new(20, WORDS).expect("it is large enough"))
    }

    #[test]
    fn a_block_has_one_owner_at_a_time_and_is_zero_for_the_next() {
        let arena = arena();
        let mut block = Arena::block(&arena, 5).unwrap();
        assert!(Arena::block(&arena, 5).is_none());
        block.words_mut(arena.block_words()).fill(7);
        drop(block);
        let block = Arena::block(&arena, 5).unwrap();
        assert!(block.words(arena.block_words()).iter().all(|word| *word == 0));
    }

    #[test]
    fn blocks_do_not_overlap_whatever_is_given_back() {
        let arena = arena();
        let words = arena.block_words();
        let mut blocks: Vec<Block> =
            (0..20).map(|index| Arena::block(&arena, index).unwrap()).collect();
        let fill = |block: &mut Block| {
            let index = block.index as u64;
            block.words_mut(words).fill(index + 1);
            block.fill();
        };
        blocks.iter_mut().for_each(fill);
        arena.tend();
        // To words in the middle of a page, to none, and all again.
        for kept in [WORDS / 3, 1, 0, words] {
            for block in blocks.iter_mut().skip(1).step_by(2) {
                block.clear_from(kept);
                assert!(block.words(words)[kept..].iter().all(|word| *word == 0));
                assert!(block.words(kept).iter().all(|word| *word == block.index as u64 + 1));
            }
            for block in blocks.iter().step_by(2) {
                assert!(block.words(words).iter().all(|word| *word == block.index as u64 + 1));
            }
            blocks.iter_mut().for_each(fill);
            arena.tend();
        }
    }

    #[test]
    fn a_page_is_ripe_when_all_of_it_is_in_use_and_again_later() {
        let arena = arena();
        let mut blocks: Vec<Block> =
            (0..20).map(|index| Arena::block(&arena, index).unwrap()).collect();
        let is_ripe = || arena.mapping().unwrap().is_any_ripe.load(Ordering::Relaxed);
        // 2 MiB are not quite seven blocks.
        blocks[..6].iter_mut().for_each(Block::fill);
        assert!(!is_ripe());
        blocks[6].fill();
        assert!(is_ripe());
        arena.tend();
        assert!(!is_ripe());
        blocks[3].clear_from(100);
        blocks[4].clear_from(0);
        blocks[3].fill();
        assert!(!is_ripe());
        blocks[4].fill();
        assert!(is_ripe(), "what was given back is in use again");
    }

    /// How many of a block's pages are in memory.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn pages_in_memory(block: &Block) -> usize {
        let words = block.words(block.arena.block_words);
        let mut pages = vec![0_u8; size_of_val(words) / small_page()];
        // SAFETY: it only requests, about whole pages of a mapping that the block is part of; there is a byte
        // for the answer to each.
        #[expect(unsafe_code, reason = "there is no safe way to ask")]
        let result = unsafe {
            let start = words.as_ptr().cast_mut().cast();
            libc::mincore(start, size_of_val(words), pages.as_mut_ptr())
        };
        assert_eq!(result, 0);
        pages.iter().filter(|page| **page & 1 == 1).count()
    }

    /// Thirty-one of the thirty-two blocks of a page are enough for a huge one. The one that nobody has is then
    /// in memory with it, and no longer.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn what_nobody_has_of_a_huge_page_goes_when_the_first_block_of_it_does() {
        const WORDS: usize = HUGE_PAGE / 32 / WORD;
        const NOBODYS: usize = 7;
        let arena = Arc::new(new(64, WORDS).expect("it is large enough"));
        let mut blocks: Vec<Block> = (0..32)
            .filter(|index| *index != NOBODYS)
            .map(|index| Arena::block(&arena, index).unwrap())
            .collect();
        for round in 1..4 {
            for block in &mut blocks {
                block.words_mut(WORDS).fill(round);
                block.fill();
            }
            assert!(arena.mapping().unwrap().is_any_ripe.load(Ordering::Relaxed), "{round}");
            assert!(!arena.tend(), "there is one only");
            assert!(
                blocks.iter().all(|block| block.words(WORDS).iter().all(|word| *word == round))
            );
            blocks[20].clear_from(0);
            let nobodys = Arena::block(&arena, NOBODYS).unwrap();
            assert_eq!(pages_in_memory(&nobodys), 0, "{round}");
            assert!(nobodys.words(WORDS).iter().all(|word| *word == 0), "{round}");
            drop(nobodys);
            assert_eq!(pages_in_memory(&blocks[20]), 0, "{round}");
            for block in &mut blocks {
                block.clear_from(WORDS / 2);
            }
        }
    }

    /// Owners fill their blocks and give them back while others make huge pages of what is full: nobody
    /// loses a word, nothing that was given back comes into memory again, and all that was counted in is
    /// counted out.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn what_is_given_back_stays_so_while_others_make_huge_pages() {
        let arena = arena();
        let words = arena.block_words();
        let own = |index: usize| {
            let mut block = Arena::block(&arena, index).unwrap();
            for round in 1..100_u64 {
                let mark = index as u64 * 1_000 + round;
                block.words_mut(words).fill(mark);
                block.fill();
                arena.tend();
                assert!(block.words(words).iter().all(|word| *word == mark), "{index}, {round}");
                let kept = if round.is_multiple_of(2) { WORDS / 3 } else { 0 };
                block.clear_from(kept);
                arena.tend();
                let most = (kept * WORD).div_ceil(small_page());
                assert!(pages_in_memory(&block) <= most, "{index}, {round}: more is in memory");
                assert!(block.words(kept).iter().all(|word| *word == mark), "{index}, {round}");
            }
        };
        std::thread::scope(|scope| {
            let own = &own;
            (0..20).for_each(|index| drop(scope.spawn(move || own(index))));
        });
        let used = arena.mapping().unwrap().used.iter().map(|used| used.load(Ordering::Relaxed));
        assert_eq!(used.collect::<Vec<u64>>(), [0; 3]);
    }

    #[test]
    fn there_is_none_for_little_memory_and_for_more_than_there_is() {
        assert!(new(4, 1_000).is_none());
        assert!(new(usize::MAX / 4_096, usize::MAX / 4_096).is_none());
        assert!(new(4_096, usize::MAX).is_none());
        // More than the machine has: there may be room for it as long as nobody uses it.
        let huge = Arc::new(new(4_096, 1 << 40).expect("it can be written down"));
        assert!(Arena::block(&huge, 0).is_none_or(|block| block.words(9) == [0; 9]));
    }
}
