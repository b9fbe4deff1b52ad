//! Every scenario of every page of `spec/`, against every implementation.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tidegate_conformance::implementation::{
    Core, Grpc, Http, Implementation, Memory, Redis, Resp, Wire,
};
use tidegate_conformance::scenario::{Outcome, Scenario, read_page, run};

/// An implementation, and how many scenarios it must have been asked, so that skipping is noticed.
struct Listed {
    name: &'static str,
    make: fn() -> Box<dyn Implementation>,
    scenarios_min: usize,
}

/// All that must obey the spec. What some of them have no words for: how long one would wait at most (five scenarios),
/// more than a double can count (ten, in Redis), permits (over gRPC), several keys (a gate).
const IMPLEMENTATIONS: [Listed; 10] = [
    Listed { name: "core", make: || Box::new(Core::default()), scenarios_min: SCENARIOS_MIN },
    Listed { name: "limiter", make: || Box::new(Memory::limiters()), scenarios_min: SCENARIOS_MIN },
    Listed { name: "Redis", make: || Box::new(Redis::default()), scenarios_min: 162 },
    Listed { name: "RESP", make: || Box::new(Wire::<Resp>::default()), scenarios_min: 171 },
    Listed { name: "HTTP", make: || Box::new(Wire::<Http>::default()), scenarios_min: 171 },
    Listed { name: "gRPC", make: || Box::new(Wire::<Grpc>::default()), scenarios_min: 158 },
    Listed {
        name: "RESP on Redis",
        make: || Box::new(Wire::<Resp>::on_redis()),
        scenarios_min: 161,
    },
    Listed {
        name: "HTTP on Redis",
        make: || Box::new(Wire::<Http>::on_redis()),
        scenarios_min: 161,
    },
    Listed {
        name: "gRPC on Redis",
        make: || Box::new(Wire::<Grpc>::on_redis()),
        scenarios_min: 149,
    },
    Listed { name: "gate", make: || Box::new(Memory::gates()), scenarios_min: 169 },
];

/// As many as there were when this was written: a page that loses its examples is noticed.
const SCENARIOS_MIN: usize = 177;
/// Fewer than this is not a specification.
const SCENARIOS_PER_PAGE_MIN: usize = 3;
/// Pages about the spec, not of it: they may have examples, and need not.
const OTHER_PAGES: [&str; 2] = ["LANGUAGE", "README"];

#[test]
fn every_implementation_obeys_every_scenario() {
    let scenarios: Vec<Scenario> = pages().into_iter().flat_map(|page| page.scenarios).collect();
    let mut failures = Vec::new();
    for Listed { name, make, scenarios_min } in IMPLEMENTATIONS {
        let mut asked = 0;
        // One for all of them: each scenario makes it forget.
        let mut implementation = make();
        for scenario in &scenarios {
            match run(scenario, &mut *implementation) {
                Outcome::Obeyed => asked += 1,
                Outcome::Skipped(_) => {}
                Outcome::Broken(breaches) => {
                    asked += 1;
                    failures.extend(breaches.iter().map(|breach| format!("[{name}] {breach}")));
                }
            }
        }
        println!("{name}: {asked} of {} scenarios asked", scenarios.len());
        if asked < scenarios_min {
            failures.push(format!("[{name}] only {asked} scenarios, expected {scenarios_min}"));
        }
    }
    assert!(failures.is_empty(), "{} broken:\n\n{}\n", failures.len(), failures.join("\n\n"));
}

#[test]
fn every_page_has_examples() {
    for Page { stem, scenarios } in algorithm_pages() {
        let count = scenarios.len();
        assert!(count >= SCENARIOS_PER_PAGE_MIN, "spec/{stem}.md has only {count} scenarios");
    }
}

/// One stem, two files: `spec/<stem>.md` and `algorithm/<stem>.rs`.
#[test]
fn every_algorithm_has_a_page_and_every_page_an_algorithm() {
    let algorithms = stems(&root().join("crates/tidegate-core/src/algorithm"), "rs");
    // Two files there are not algorithms: the interface, and what two of them share.
    let algorithms = algorithms.into_iter().filter(|stem| stem != "mod" && stem != "window");
    let pages: BTreeSet<String> = algorithm_pages().map(|page| page.stem).collect();
    assert_eq!(pages, algorithms.collect::<BTreeSet<_>>());
}

struct Page {
    stem: String,
    scenarios: Vec<Scenario>,
}

fn algorithm_pages() -> impl Iterator<Item = Page> {
    pages().into_iter().filter(|page| !OTHER_PAGES.contains(&&*page.stem))
}

fn pages() -> Vec<Page> {
    let folder = root().join("spec");
    let read = |stem: String| {
        let text = fs::read_to_string(folder.join(&stem).with_extension("md"));
        let text = text.expect("a page that was just listed can be read");
        let scenarios = read_page(&format!("spec/{stem}.md"), &text);
        Page { stem, scenarios: scenarios.unwrap_or_else(|error| panic!("{error}")) }
    };
    stems(&folder, "md").into_iter().map(read).collect()
}

/// The names of the files with this extension, without it, in order.
fn stems(folder: &Path, extension: &str) -> BTreeSet<String> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("the folder can be listed").path());
    let paths = paths.filter(|path| path.extension().is_some_and(|found| found == extension));
    let stem = |path: PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    paths.filter_map(stem).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
