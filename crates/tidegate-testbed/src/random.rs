//! Reproducible pseudo-random numbers.

/// `SplitMix64`, initialised with a seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next number, of any size.
    #[expect(
        clippy::should_implement_trait,
        reason = "the sequence is endless, and no caller iterates over it"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `end`, or zero if `end` is zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}
