//! Every scenario of every page of `spec/`, against every implementation.

#[path = "scenarios/exceptions.rs"]
mod exceptions;

use exceptions::{
    EMULATED_WAIT, Exception, IN_FLIGHT, KEYS, LARGE_COSTS, LARGE_RULES, LARGE_TIMES, LONGEST_WAIT,
    RESET_OVER_HTTP,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use tidegate_conformance::implementation::{
    Core, Grpc, Http, Implementation, Memory, Redis, Resp, Wire,
};
use tidegate_conformance::scenario::{Scenario, ScenarioResult, read_page, run};

/// An implementation, and the scenarios that it does not run as they are written. A scenario that is skipped and not listed fails
/// the test.
struct Listed {
    name: &'static str,
    make: fn() -> Box<dyn Implementation>,
    /// The scenarios that it does not support.
    unsupported: &'static [Exception],
    /// The scenarios in which it emulates an operation.
    emulated: &'static [Exception],
}

/// The implementations that must obey the spec. Servers are called over real sockets.
const IMPLEMENTATIONS: [Listed; 10] = [
    Listed { name: "core", make: || Box::new(Core::default()), unsupported: &[], emulated: &[] },
    Listed {
        name: "limiter",
        make: || Box::new(Memory::limiters()),
        unsupported: &[],
        emulated: &[],
    },
    Listed {
        name: "Redis",
        make: || Box::new(Redis::default()),
        unsupported: &[LONGEST_WAIT, LARGE_RULES, LARGE_TIMES, LARGE_COSTS],
        emulated: &[],
    },
    Listed {
        name: "RESP",
        make: || Box::new(Wire::<Resp>::default()),
        unsupported: &[],
        emulated: &[EMULATED_WAIT],
    },
    Listed {
        name: "HTTP",
        make: || Box::new(Wire::<Http>::default()),
        unsupported: &[],
        emulated: &[EMULATED_WAIT],
    },
    Listed {
        name: "gRPC",
        make: || Box::new(Wire::<Grpc>::default()),
        unsupported: &[IN_FLIGHT, LONGEST_WAIT],
        emulated: &[RESET_OVER_HTTP],
    },
    Listed {
        name: "RESP on Redis",
        make: || Box::new(Wire::<Resp>::on_redis()),
        unsupported: &[LARGE_RULES, LARGE_TIMES, LARGE_COSTS],
        emulated: &[EMULATED_WAIT],
    },
    Listed {
        name: "HTTP on Redis",
        make: || Box::new(Wire::<Http>::on_redis()),
        unsupported: &[LARGE_RULES, LARGE_TIMES, LARGE_COSTS],
        emulated: &[EMULATED_WAIT],
    },
    Listed {
        name: "gRPC on Redis",
        make: || Box::new(Wire::<Grpc>::on_redis()),
        unsupported: &[IN_FLIGHT, LONGEST_WAIT, LARGE_RULES, LARGE_TIMES, LARGE_COSTS],
        emulated: &[RESET_OVER_HTTP],
    },
    Listed {
        name: "gate",
        make: || Box::new(Memory::gates()),
        unsupported: &[KEYS],
        emulated: &[],
    },
];

/// The number of scenarios when this was written, so that the test fails if a page loses its examples.
const SCENARIOS_MIN: usize = 178;
/// The smallest number of scenarios that specifies an algorithm.
const SCENARIOS_PER_PAGE_MIN: usize = 3;
/// Pages about the specification, which need no scenarios.
const OTHER_PAGES: [&str; 2] = ["LANGUAGE", "README"];
/// The files in the folder of the algorithms that are not algorithms: the interface, the dispatch, and the counter of two
/// algorithms.
const OTHER_FILES: [&str; 3] = ["mod", "dispatch", "window"];

#[test]
fn every_implementation_obeys_every_scenario() {
    let scenarios = named();
    let count = scenarios.len();
    assert!(count >= SCENARIOS_MIN, "only {count} scenarios, expected {SCENARIOS_MIN}");
    let mut failures = Vec::new();
    for Listed { name, make, unsupported, emulated } in IMPLEMENTATIONS {
        // One implementation for all scenarios: each scenario drops the state of the one before.
        let mut implementation = make();
        let (mut skipped, mut emulations) = (Vec::new(), Vec::new());
        for (scenario_name, scenario) in &scenarios {
            let result = run(scenario, &mut *implementation);
            if let ScenarioResult::Skipped(why) = result {
                skipped.push((&**scenario_name, why));
                continue;
            }
            if let ScenarioResult::Failed(breaches) = result {
                failures.extend(breaches.iter().map(|breach| format!("[{name}] {breach}")));
            }
            emulations.extend(implementation.emulation().map(|why| (&**scenario_name, why)));
        }
        let (ran, emulations_count) = (count - skipped.len(), emulations.len());
        println!(
            "{name}: {ran} of {count} scenarios ran, {emulations_count} with an emulated operation"
        );
        let mut wrong = compare(&skipped, unsupported, "run");
        wrong.extend(compare(&emulations, emulated, "run without emulation"));
        failures.extend(wrong.iter().map(|wrong| format!("[{name}] {wrong}")));
    }
    assert!(failures.is_empty(), "{} broken:\n\n{}\n", failures.len(), failures.join("\n\n"));
}

/// Compares the exceptions that were found with a list, and returns the differences.
fn compare(found: &[(&str, &str)], listed: &[Exception], rule: &str) -> Vec<String> {
    let is_of = |it: &Exception, scenario, why| it.why == why && it.scenarios.contains(&scenario);
    let mut wrong = Vec::new();
    for (scenario, why) in found {
        if !listed.iter().any(|exception| is_of(exception, *scenario, *why)) {
            wrong.push(format!("{scenario}\n    not {rule}, but not listed: {why}"));
        }
    }
    let all = listed.iter().flat_map(|it| it.scenarios.iter().map(move |name| (*name, it.why)));
    for (scenario, why) in all.filter(|(name, _)| !found.iter().any(|(found, _)| found == name)) {
        wrong.push(format!("{scenario}\n    listed, although it is {rule}: {why}"));
    }
    wrong
}

/// Returns every scenario with its name: its page and its rules.
fn named() -> Vec<(String, Scenario)> {
    let mut times = BTreeMap::new();
    let mut name = |stem: &str, scenario: &Scenario| {
        let name = format!("{stem}: {}", scenario.rules.join(", "));
        let time: &mut usize = times.entry(name.clone()).or_default();
        *time += 1;
        if *time == 1 { name } else { format!("{name} ({time})") }
    };
    let mut all = Vec::new();
    for Page { stem, scenarios } in pages() {
        all.extend(scenarios.into_iter().map(|scenario| (name(&stem, &scenario), scenario)));
    }
    all
}

#[test]
fn every_page_has_examples() {
    for Page { stem, scenarios } in algorithm_pages() {
        let count = scenarios.len();
        assert!(count >= SCENARIOS_PER_PAGE_MIN, "spec/{stem}.md has only {count} scenarios");
    }
}

/// `spec/<stem>.md` belongs to `algorithm/<stem>.rs`.
#[test]
fn every_algorithm_has_a_page_and_every_page_an_algorithm() {
    let algorithms = stems(&root().join("crates/tidegate-core/src/algorithm"), "rs");
    let algorithms = algorithms.into_iter().filter(|stem| !OTHER_FILES.contains(&&**stem));
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

/// Returns the names of the files with this extension, without the extension, in order.
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
