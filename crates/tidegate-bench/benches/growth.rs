//! The time of a decision as the number of live keys grows from a hundred to ten million.
//!
//! `cargo xtask bench --bench growth` writes CSV; `-- --svg FILE` also draws a chart, `-- --most 100000` stops at that
//! number of keys. One thread, uniform keys of 20 bytes. At each size the limiters take turns; the chart shows the
//! median of the rounds.
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tidegate_bench::arguments::{Arguments, Syntax};
use tidegate_bench::entrant::{Entrant, Limit, Setup};
use tidegate_bench::plot::{Plot, Scale, Series};
use tidegate_bench::ratio::Ratio;
use tidegate_bench::traffic::{KeyLayout, Spread, Traffic};
use tidegate_bench::turns::{self, Contestant, Effort};
use tidegate_bench::{ours, peers};

const KNOWN: Syntax = Syntax {
    flags: &["--quick", "--scattered"],
    options: &["--against", "--most", "--svg"],
    words: &[],
};

const EFFORT: Effort = Effort { rounds: 11, shorter: 1 };

/// Each size is the previous one times the square root of ten.
const KEYS: [u32; 11] =
    [100, 316, 1_000, 3_162, 10_000, 31_623, 100_000, 316_228, 1_000_000, 3_162_278, 10_000_000];

/// The peers in the chart, and their maximum number of keys.
const PEERS: [(&str, u32); 3] =
    [("governor", u32::MAX), ("throttlecrab periodic", u32::MAX), ("limitador", 100_000)];

fn main() -> ExitCode {
    Arguments::run(&KNOWN, |arguments| {
        let most = arguments.value("--most").map_or(Ok(u32::MAX), str::parse);
        let series = measure(arguments, most.map_err(|_| "--most is a number of keys")?);
        let Some(file) = arguments.value("--svg") else { return Ok(()) };
        let path = in_workspace(file);
        fs::write(&path, plot(series).svg()).map_err(|error| format!("{}: {error}", path.display()))
    })
}

/// Measures every size, and prints each result at once because the largest sizes take a while.
fn measure(arguments: &Arguments, most: u32) -> Vec<Series> {
    let effort = if arguments.has("--quick") { Effort::QUICK } else { EFFORT };
    let place = if arguments.has("--scattered") { KeyLayout::Scattered } else { KeyLayout::Fresh };
    let mut all: Vec<Series> = Vec::new();
    println!("keys,limiter,ns_median,ns_low,ns_high");
    for keys in KEYS.into_iter().filter(|keys| *keys <= most) {
        let traffic = Arc::new(Traffic::new(keys, Spread::Uniform, place));
        let setup = Setup { limit: Limit::MANY_KEYS, keys };
        let entrants = entrants(arguments, keys);
        let contestants: Vec<Contestant<String>> =
            entrants.iter().map(|entrant| Contestant::new(entrant, setup, &traffic)).collect();
        for (entrant, times) in entrants.iter().zip(turns::take(&contestants, 1, effort)) {
            let Ratio { median, low, high } = Ratio::spread(&times);
            println!("{keys},\"{}\",{median:.1},{low:.1},{high:.1}", entrant.name);
            add(&mut all, entrant.name, (f64::from(keys), median));
        }
    }
    all
}

fn entrants(arguments: &Arguments, keys: u32) -> Vec<Entrant<String>> {
    let is_drawn = |peer: &Entrant<String>| {
        PEERS.iter().any(|(name, most)| *name == peer.name && keys <= *most)
    };
    let peers = peers::of_strings().into_iter();
    let peers = peers.filter(|peer| is_drawn(peer) && arguments.wants_peer(peer.name));
    ours::entrants().into_iter().chain(peers).collect()
}

fn add(all: &mut Vec<Series>, name: &str, point: (f64, f64)) {
    if let Some(series) = all.iter_mut().find(|series| series.name == name) {
        series.points.push(point);
    } else {
        all.push(Series::measured(name, vec![point]));
    }
}

fn plot(series: Vec<Series>) -> Plot {
    Plot {
        title: "Time of a decision: 20-byte keys, uniform, one thread".to_owned(),
        x_label: "live keys".to_owned(),
        y_label: "ns/decision".to_owned(),
        scale: Scale::Logarithmic,
        series,
    }
}

/// Resolves a path from the root of the workspace. Cargo starts benches in the directory of their crate.
fn in_workspace(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)
}
