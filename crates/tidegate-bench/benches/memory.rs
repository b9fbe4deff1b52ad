//! Memory per live key, for tidegate with each rule of constant state, and for the peers.
//!
//! Each figure comes from a process of its own: the resident memory after every key was checked twice, less the
//! resident memory before, divided by the number of keys; and the same for the peak. All keys are in debt.
//! `cargo xtask bench --bench memory`.
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::process::{Command, ExitCode};
use tidegate_bench::arguments::{Arguments, Syntax};
use tidegate_bench::entrant::{Decide, Entrant, Limit, Setup};
use tidegate_bench::resident::Resident;
use tidegate_bench::traffic::{Key, fill};
use tidegate_bench::{ours, peers};

const KNOWN: Syntax = Syntax {
    flags: &["--quick"],
    options: &["--child", "--keys"],
    words: &["1M", "10M", "ours", "peers"],
};

const SIZES: [(u32, &str); 2] = [(1_000_000, "1M"), (10_000_000, "10M")];

/// One request puts a key in debt for longer than a measurement takes.
const RULES: [Rule; 9] = [
    Rule { text: "10/h burst 1000", bytes_max: 40.0 },
    Rule { text: "10/h leaky capacity 1000", bytes_max: 48.0 },
    Rule { text: "10/h queue capacity 1000", bytes_max: 48.0 },
    Rule { text: "1000/h fixed", bytes_max: 48.0 },
    Rule { text: "1000/day calendar", bytes_max: 48.0 },
    Rule { text: "1000/h sliding", bytes_max: 48.0 },
    Rule { text: "10/h smooth", bytes_max: 48.0 },
    Rule { text: "10/h warmup 1h", bytes_max: 48.0 },
    Rule { text: "1r/m burst=1000", bytes_max: 48.0 },
];

struct Rule {
    text: &'static str,
    /// Maximum bytes per key at ten million keys; the peak may be half as much again.
    bytes_max: f64,
}

const LIMIT: Limit = Limit { per_hour: 10, burst: 1_000 };

/// Limiters without a row: a sketch of fixed size, and limiters with the same map as another.
const LEFT_OUT: [&str; 3] = ["pingora-limits", "throttlecrab adaptive", "Mutex<HashMap>"];

fn main() -> ExitCode {
    Arguments::run(&KNOWN, |arguments| {
        match (arguments.value("--child"), arguments.value("--keys")) {
            (Some(name), Some(keys)) => child(name, keys),
            _ => measure_all(arguments),
        }
    })
}

/// A limiter to measure, in a process of its own.
struct Subject {
    name: String,
    keys_max: u32,
    bytes_max: Option<f64>,
    grow: Box<dyn Fn(u32) -> Option<Growth>>,
}

/// Resident memory before and after.
struct Growth {
    start: Resident,
    end: Resident,
}

fn subjects() -> Vec<Subject> {
    let mut subjects = Vec::new();
    for rule in &RULES {
        let grow = |keys| grow::<u64>(keys, |keys| ours::single(rule.text, keys));
        let name = format!("tidegate {}", rule.text);
        let bytes_max = Some(rule.bytes_max);
        subjects.push(Subject { name, keys_max: u32::MAX, bytes_max, grow: Box::new(grow) });
    }
    subjects.push(Subject {
        name: format!("tidegate {}, string", RULES[0].text),
        keys_max: u32::MAX,
        bytes_max: Some(RULES[0].bytes_max),
        grow: Box::new(|keys| grow::<String>(keys, |keys| ours::single(RULES[0].text, keys))),
    });
    subjects.extend(peers::of_any_key::<u64>().iter().filter_map(peer));
    subjects.extend(peers::of_strings().iter().filter_map(peer));
    subjects
}

fn peer<K: Key>(peer: &Entrant<K>) -> Option<Subject> {
    if LEFT_OUT.contains(&peer.name) {
        return None;
    }
    let build = peer.build;
    let build = move |keys| build(Setup { limit: LIMIT, keys });
    Some(Subject {
        name: format!("{}, {}", peer.name, K::WORD),
        keys_max: peer.keys_max,
        bytes_max: None,
        grow: Box::new(move |keys| grow::<K>(keys, build)),
    })
}

fn grow<K: Key>(keys: u32, build: impl Fn(u32) -> Decide<K>) -> Option<Growth> {
    let decide = build(keys);
    fill(1, &decide);
    let start = Resident::of_process()?;
    // The first key has been checked before, and some rules make its second request wait.
    assert!(fill(keys, &decide) + 1 >= keys, "the limiter denied some of the keys");
    // Check all keys again, so that a table that grows incrementally finishes doing so.
    fill(keys, &decide);
    Some(Growth { start, end: Resident::of_process()? })
}

fn measure_all(arguments: &Arguments) -> Result<(), String> {
    println!("{:<36} {:>5} {:>12} {:>12}   bytes per key", "", "keys", "settled", "peak");
    for (keys, word) in SIZES {
        let skipped = arguments.has("--quick") && keys > SIZES[0].0;
        for subject in subjects().iter().filter(|subject| keys <= subject.keys_max && !skipped) {
            let whose = if subject.bytes_max.is_some() { "ours" } else { "peers" };
            if arguments.wants(&[word, whose]) {
                measure(subject, keys, word)?;
            }
        }
    }
    Ok(())
}

fn measure(subject: &Subject, keys: u32, word: &str) -> Result<(), String> {
    let name = subject.name.as_str();
    let [settled, peak] = in_child(name, keys)?;
    let verdict = match subject.bytes_max {
        Some(most) if word == "10M" => {
            let verdict = |is: f64, most: f64| if is <= most { "yes" } else { "NO" };
            let (settled, peak) = (verdict(settled, most), verdict(peak, most * 1.5));
            format!("   <= {most}: {settled}; <= {}: {peak}", most * 1.5)
        }
        _ => String::new(),
    };
    println!("{name:<36} {word:>5} {settled:>12.1} {peak:>12.1}{verdict}");
    Ok(())
}

/// Measures in a child process, and returns bytes per key, settled and at the peak.
fn in_child(name: &str, keys: u32) -> Result<[f64; 2], String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let keys = keys.to_string();
    let output = Command::new(program)
        .args(["--child", name, "--keys", &keys])
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    figures.try_into().map_err(|_| format!("{name}: printed `{text}`"))
}

/// The child process: fills one limiter and prints its memory.
fn child(name: &str, keys: &str) -> Result<(), String> {
    let keys: u32 = keys.parse().map_err(|_| format!("`{keys}` is not a number of keys"))?;
    let subjects = subjects();
    let subject = subjects.iter().find(|subject| subject.name == name);
    let subject = subject.ok_or(format!("there is no limiter `{name}`"))?;
    let growth = (subject.grow)(keys).ok_or("this bench needs /proc/self/status of Linux")?;
    let per_key = |kib: u64| {
        let kib = u32::try_from(kib.saturating_sub(growth.start.now_kib)).unwrap_or(u32::MAX);
        f64::from(kib) * 1_024.0 / f64::from(keys)
    };
    println!("{} {}", per_key(growth.end.now_kib), per_key(growth.end.peak_kib));
    Ok(())
}
