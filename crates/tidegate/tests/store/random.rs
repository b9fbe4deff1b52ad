//! Random numbers that are the same in every run, and Zipf's law with exponent 1.

/// `SplitMix64`.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(end)) >> 64).unwrap()
    }
}

/// Rank r, counted from 0, is drawn with a probability proportional to 1 / (r + 1).
pub(crate) struct Zipf {
    /// The sum up to and with each rank, in parts of `WHOLE`.
    sums: Vec<u64>,
}

const WHOLE: u64 = 1 << 40;

impl Zipf {
    pub(crate) fn new(ranks: u64) -> Self {
        let add = |sum: &mut u64, rank: u64| {
            *sum += WHOLE / rank;
            Some(*sum)
        };
        Self { sums: (1..=ranks).scan(0, add).collect() }
    }

    pub(crate) fn rank(&self, random: &mut Random) -> usize {
        let drawn = random.below(self.sums[self.sums.len() - 1]);
        self.sums.partition_point(|sum| *sum <= drawn)
    }
}
