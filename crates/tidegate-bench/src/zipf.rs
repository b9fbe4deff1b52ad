//! Random numbers that are the same in every run, and Zipf's law with exponent 1.

/// `SplitMix64`: a bijection of 64 bits that looks random.
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the `n`th of a sequence of random numbers below `end`.
#[expect(clippy::cast_possible_truncation, reason = "it is below `end`, which fits")]
pub fn uniform(n: u32, end: u32) -> u32 {
    ((u128::from(mix(u64::from(n))) * u128::from(end)) >> 64) as u32
}

/// A distribution of ranks: rank r has a probability proportional to 1 / r.
pub struct Zipf {
    /// For each rank, the sum of 1 / r up to and including it.
    sums: Vec<f64>,
}

impl Zipf {
    /// Creates the distribution of this many ranks, at least one.
    pub fn new(ranks: u32) -> Self {
        let add = |sum: &mut f64, rank: u32| {
            *sum += f64::from(rank).recip();
            Some(*sum)
        };
        Self { sums: (1..=ranks).scan(0.0, add).collect() }
    }

    /// Returns the `n`th of a sequence of random ranks, counted from 0.
    #[expect(clippy::cast_possible_truncation, reason = "there are no more ranks than fit")]
    pub fn rank(&self, n: u32) -> u32 {
        let total = self.sums[self.sums.len() - 1];
        let drawn = f64::from(uniform(n, u32::MAX)) / f64::from(u32::MAX) * total;
        self.sums.partition_point(|sum| *sum <= drawn) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 100_000;

    #[test]
    fn the_first_of_a_million_gets_a_fourteenth() {
        let zipf = Zipf::new(1_000_000);
        let ranks = (0..DRAWS).map(|n| zipf.rank(n));
        let first = ranks.clone().filter(|rank| *rank == 0).count();
        let second = ranks.clone().filter(|rank| *rank == 1).count();
        // The sum of 1 / r up to a million is 14.39.
        assert!((6_700..7_200).contains(&first), "{first}");
        assert!((3_300..3_650).contains(&second), "{second}");
        assert!(ranks.max().unwrap() < 1_000_000);
    }

    #[test]
    fn uniform_numbers_fill_their_range() {
        let numbers: Vec<u32> = (0..DRAWS).map(|n| uniform(n, 10)).collect();
        for number in 0..10 {
            let count = numbers.iter().filter(|drawn| **drawn == number).count();
            assert!((9_600..10_400).contains(&count), "{number}: {count}");
        }
    }
}
