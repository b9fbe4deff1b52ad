//! Adaptive concurrency on a simulated service whose capacity steps from 1000 to 200 and back (T14).
//!
//! `cargo run --release -p tidegate-bench --example adaptive` prints the result of each law;
//! `-- docs/guide/adaptive.svg` also draws it.
#![expect(clippy::print_stdout, reason = "its output is the result")]

use tidegate_bench::service::{Slice, Trial, percentile};
use tidegate_bench::step::{BASE, PHASE, picture, runs};

fn main() -> std::io::Result<()> {
    let trial = Trial::fewer(BASE, PHASE);
    let runs = runs(&trial);
    println!(
        "{:<10} {:>5} {:>9} {:>9} {:>6} {:>8} {:>8}",
        "law", "from", "capacity", "served/s", "limit", "p50", "p99"
    );
    for (name, slices) in &runs {
        // Ten seconds per line.
        for line in slices.chunks(20) {
            let [p50, p99] = [50, 99].map(|percent| percentile(line, percent).as_micros() / 1_000);
            let served = line.iter().map(|slice| slice.served).sum::<u64>() / 10;
            let Some(Slice { from, .. }) = line.first() else { continue };
            let limit = line.last().map_or(0, |slice| slice.limit);
            println!(
                "{name:<10} {:>5} {:>9} {served:>9} {limit:>6} {:>8} {:>8}",
                from.to_string(),
                trial.at(*from).capacity(),
                format!("{p50} ms"),
                format!("{p99} ms"),
            );
        }
    }
    match std::env::args().nth(1) {
        Some(path) => std::fs::write(path, picture(&trial, &runs)),
        None => Ok(()),
    }
}
