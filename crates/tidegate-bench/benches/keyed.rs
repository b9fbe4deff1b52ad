//! The keyed limiter against its peers, side by side in one run.
//!
//! Tidegate and each peer take turns, round after round, on the same requests. The result is the median of the ratios
//! within a round. `cargo xtask bench --bench keyed` measures everything; words after `--` select workloads, for
//! example `-- 1M uniform string 1-thread`.
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::process::ExitCode;
use std::sync::Arc;
use tidegate_bench::arguments::{Arguments, Syntax};
use tidegate_bench::entrant::{Entrant, Limit, Setup};
use tidegate_bench::ours::{self, BATCHED, NAME};
use tidegate_bench::peers::{self, GOVERNOR};
use tidegate_bench::ratio::{Ratio, median};
use tidegate_bench::traffic::{Key, KeyLayout, Spread, Traffic};
use tidegate_bench::turns::{self, Contestant, Effort};

const KNOWN: Syntax = Syntax {
    flags: &["--quick", "--scattered"],
    options: &["--against"],
    words: &[
        "hot",
        "10k",
        "1M",
        "10M",
        "uniform",
        "zipf",
        "u64",
        "string",
        "1-thread",
        "2-threads",
    ],
};

const EFFORT: Effort = Effort { rounds: 21, shorter: 1 };
const THREADS: [(usize, &str); 2] = [(1, "1-thread"), (2, "2-threads")];

struct Population {
    words: &'static [&'static str],
    keys: u32,
    spread: Spread,
}

const POPULATIONS: [Population; 5] = [
    Population { words: &["hot"], keys: 1, spread: Spread::Uniform },
    Population { words: &["10k", "uniform"], keys: 10_000, spread: Spread::Uniform },
    Population { words: &["1M", "uniform"], keys: MILLION, spread: Spread::Uniform },
    Population { words: &["1M", "zipf"], keys: MILLION, spread: Spread::Zipf },
    Population { words: &["10M", "uniform"], keys: 10 * MILLION, spread: Spread::Uniform },
];

const MILLION: u32 = 1_000_000;

/// Batches on one million keys, measured in the same rounds as ten million, to show how the cost grows.
const BATCHED_AT_1M: &str = "batch of 64, at 1M";

/// The maximum ratio of one entrant's time to another's, in workloads with all of `words`.
struct Target {
    words: &'static [&'static str],
    ours: &'static str,
    other: &'static str,
    most: f64,
}

const TARGETS: [Target; 7] = [
    Target { words: &["10k", "uniform", "string"], ours: NAME, other: GOVERNOR, most: 0.9 },
    Target { words: &["1M", "uniform", "string"], ours: NAME, other: GOVERNOR, most: 0.55 },
    Target { words: &["1M", "zipf", "string"], ours: NAME, other: GOVERNOR, most: 0.65 },
    Target { words: &["hot", "string", "1-thread"], ours: NAME, other: GOVERNOR, most: 0.8 },
    Target { words: &["hot", "string", "2-threads"], ours: NAME, other: GOVERNOR, most: 0.4 },
    Target { words: &["1M", "uniform", "string"], ours: BATCHED, other: GOVERNOR, most: 0.2 },
    Target { words: &["10M", "string"], ours: BATCHED, other: BATCHED_AT_1M, most: 1.5 },
];

fn main() -> ExitCode {
    Arguments::run(&KNOWN, |arguments| {
        let mut results = Vec::new();
        for population in &POPULATIONS {
            results.extend(compare(arguments, population, &peers::of_any_key::<u64>()));
            results.extend(compare(arguments, population, &peers::of_strings()));
        }
        if results.is_empty() {
            return Err("no workload has all of these words".to_owned());
        }
        summarise(&results);
        Ok(())
    })
}

/// The result of one workload: the entrants, and their times by round.
struct WorkloadResult {
    words: Vec<&'static str>,
    names: Vec<&'static str>,
    times: Vec<Vec<f64>>,
}

/// Measures one population with one type of key, with each number of threads that was selected.
fn compare<K: Key>(
    arguments: &Arguments,
    population: &Population,
    peers: &[Entrant<K>],
) -> Vec<WorkloadResult> {
    let words = |threads| [population.words, &[K::WORD, threads]].concat();
    let threads = THREADS.into_iter().filter(|(_, word)| arguments.wants(&words(*word)));
    let threads: Vec<_> = threads.collect();
    if threads.is_empty() {
        return Vec::new();
    }
    let quick = arguments.has("--quick");
    let effort = if quick { Effort::QUICK } else { EFFORT };
    let contestants = contestants(arguments, population, peers);
    let names: Vec<_> = contestants.iter().map(|contestant| contestant.name).collect();
    let result = |(threads, word)| {
        let times = turns::take(&contestants, threads, effort);
        let result = WorkloadResult { words: words(word), names: names.clone(), times };
        result.print();
        result
    };
    threads.into_iter().map(result).collect()
}

fn contestants<K: Key>(
    arguments: &Arguments,
    population: &Population,
    peers: &[Entrant<K>],
) -> Vec<Contestant<K>> {
    let place = if arguments.has("--scattered") { KeyLayout::Scattered } else { KeyLayout::Fresh };
    let limit = if population.keys == 1 { Limit::ONE_KEY } else { Limit::MANY_KEYS };
    let traffic = Arc::new(Traffic::new(population.keys, population.spread, place));
    let setup = Setup { limit, keys: population.keys };
    let ours = ours::entrants::<K>();
    let peers = peers.iter().filter(|peer| arguments.wants_peer(peer.name));
    let able = ours.iter().chain(peers).filter(|entrant| entrant.keys_max >= population.keys);
    let mut contestants: Vec<_> =
        able.map(|entrant| Contestant::new(entrant, setup, &traffic)).collect();
    if population.keys > MILLION {
        let traffic = Arc::new(Traffic::new(MILLION, population.spread, place));
        let smaller = Entrant { name: BATCHED_AT_1M, ..ours[1] };
        contestants.push(Contestant::new(&smaller, Setup { limit, keys: MILLION }, &traffic));
    }
    contestants
}

impl WorkloadResult {
    fn print(&self) {
        let rounds = self.times[0].len();
        println!("\n{}, {rounds} rounds", self.words.join(" "));
        println!("{:<24} {:>9}   {:<18} {BATCHED} / it", "", "ns/op", "tidegate / it");
        for (name, times) in self.names.iter().zip(&self.times) {
            print!("{name:<24} {:>9.1}", median(times));
            if ![NAME, BATCHED].contains(name) {
                print!("   {:<18}", self.ratio(NAME, name).expect("it took part"));
                print!(" {}", self.ratio(BATCHED, name).expect("it took part"));
            }
            println!();
        }
        let fits = |target: &&Target| target.words.iter().all(|word| self.words.contains(word));
        for Target { ours, other, most, .. } in TARGETS.iter().filter(fits) {
            if let Some(ratio) = self.ratio(ours, other) {
                println!("{ours} / {other}: {ratio}  {}", ratio.verdict(*most));
            }
        }
    }

    fn times(&self, name: &str) -> Option<&[f64]> {
        let index = self.names.iter().position(|known| *known == name)?;
        Some(&self.times[index])
    }

    fn ratio(&self, ours: &str, other: &str) -> Option<Ratio> {
        Some(Ratio::of(self.times(ours)?, self.times(other)?))
    }

    /// Returns a row of the table: nanoseconds, and the ratio of tidegate to each peer.
    fn row(&self, names: &[&str]) -> String {
        let cell = |name: &&str| match self.times(name) {
            Some(times) if [NAME, BATCHED].contains(name) => format!("{:.0}", median(times)),
            Some(times) => {
                let ratio = self.ratio(NAME, name).expect("it took part");
                format!("{:.0}: {ratio}", median(times))
            }
            None => "-".to_owned(),
        };
        let cells: Vec<String> = names.iter().map(cell).collect();
        format!("| {} | {} |", self.words.join(" "), cells.join(" | "))
    }
}

/// Prints all results as a Markdown table.
fn summarise(results: &[WorkloadResult]) {
    let mut names: Vec<&str> = Vec::new();
    for name in results.iter().flat_map(|result| &result.names) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    println!("\nns per decision; for peers, also tidegate / it: median (range)\n");
    println!("| | {} |", names.join(" | "));
    println!("|---{}|", "|---".repeat(names.len()));
    for result in results {
        println!("{}", result.row(&names));
    }
}
