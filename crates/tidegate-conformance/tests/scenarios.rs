//! Every scenario of every page of `spec/`, against every implementation.

#[path = "scenarios/exceptions.rs"]
mod exceptions;

use exceptions::{
    Exception, IN_FLIGHT, KEYS, LARGE_COSTS, LARGE_RULES, LARGE_TIMES, LOOKED_FIRST, PATIENCE,
    RESET_OVER_HTTP,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use tidegate_conformance::implementation::{
    Core, Grpc, Http, Implementation, Memory, Redis, Resp, Wire,
};
use tidegate_conformance::scenario::{Scenario, ScenarioResult, read_page, run};

/// An implementation, and the scenarios that it is not asked as they are written, so that skipping is noticed.
struct Listed {
    name: &'static str,
    make: fn() -> Box<dyn Implementation>,
    /// What it has no words for.
    unsaid: &'static [Exception],
    /// What it says in other words.
    detours: &'static [Exception],
}

/// All that must obey the spec. Wires are asked over real sockets.
const IMPLEMENTATIONS: [Listed; 10] = [
    Listed { name: "core", make: || Box::new(Core::default()), unsaid: &[], detours: &[] },
    Listed { name: "limiter", make: || Box::new(Memory::limiters()), unsaid: &[], detours: &[] },
    Listed {
        name: "Redis",
        make: || Box::new(Redis::default()),
        unsaid: &[PATIENCE, LARGE_RULES, LARGE_TIMES, LARGE_COSTS],
        detours: &[],
    },
    Listed {
        name: "RESP",
        make: || Box::new(Wire::<Resp>::default()),
        unsaid: &[],
        detours: &[LOOKED_FIRST],
    },
    Listed {
        name: "HTTP",
        make: || Box::new(Wire::<Http>::default()),
        unsaid: &[],
        detours: &[LOOKED_FIRST],
    },
    Listed {
        name: "gRPC",
        make: || Box::new(Wire::<Grpc>::default()),
        unsaid: &[IN_FLIGHT, PATIENCE],
        detours: &[RESET_OVER_HTTP],
    },
    Listed {
        name: "RESP on Redis",
        make: || Box::new(Wire::<Resp>::on_redis()),
        unsaid: &[LARGE_RULES, LARGE_TIMES, LARGE_COSTS],
        detours: &[LOOKED_FIRST],
    },
    Listed {
        name: "HTTP on Redis",
        make: || Box::new(Wire::<Http>::on_redis()),
        unsaid: &[LARGE_RULES, LARGE_TIMES, LARGE_COSTS],
        detours: &[LOOKED_FIRST],
    },
    Listed {
        name: "gRPC on Redis",
        make: || Box::new(Wire::<Grpc>::on_redis()),
        unsaid: &[IN_FLIGHT, PATIENCE, LARGE_RULES, LARGE_TIMES, LARGE_COSTS],
        detours: &[RESET_OVER_HTTP],
    },
    Listed { name: "gate", make: || Box::new(Memory::gates()), unsaid: &[KEYS], detours: &[] },
];

/// As many as there were when this was written: a page that loses its examples is noticed.
const SCENARIOS_MIN: usize = 178;
/// Fewer than this is not a specification.
const SCENARIOS_PER_PAGE_MIN: usize = 3;
/// Pages about the spec, not of it: they may have examples, and need not.
const OTHER_PAGES: [&str; 2] = ["LANGUAGE", "README"];

#[test]
fn every_implementation_obeys_every_scenario() {
    let scenarios = named();
    let count = scenarios.len();
    assert!(count >= SCENARIOS_MIN, "only {count} scenarios, expected {SCENARIOS_MIN}");
    let mut failures = Vec::new();
    for Listed { name, make, unsaid, detours } in IMPLEMENTATIONS {
        // One for all of them: each scenario makes it forget.
        let mut implementation = make();
        let (mut passed_over, mut emulated) = (Vec::new(), Vec::new());
        for (scenario_name, scenario) in &scenarios {
            let result = run(scenario, &mut *implementation);
            if let ScenarioResult::Skipped(why) = result {
                passed_over.push((&**scenario_name, why));
                continue;
            }
            if let ScenarioResult::Failed(breaches) = result {
                failures.extend(breaches.iter().map(|breach| format!("[{name}] {breach}")));
            }
            emulated.extend(implementation.emulation().map(|why| (&**scenario_name, why)));
        }
        let (asked, otherwise) = (count - passed_over.len(), emulated.len());
        println!("{name}: {asked} of {count} scenarios asked, {otherwise} in other words");
        let mut wrong = compare(&passed_over, unsaid, "asked");
        wrong.extend(compare(&emulated, detours, "asked in the spec's words"));
        failures.extend(wrong.iter().map(|wrong| format!("[{name}] {wrong}")));
    }
    assert!(failures.is_empty(), "{} broken:\n\n{}\n", failures.len(), failures.join("\n\n"));
}

/// What is wrong with a list of exceptions, if these were found.
fn compare(found: &[(&str, &str)], listed: &[Exception], rule: &str) -> Vec<String> {
    let is_of = |it: &Exception, scenario, why| it.why == why && it.scenarios.contains(&scenario);
    let mut wrong = Vec::new();
    for (scenario, why) in found {
        if !listed.iter().any(|exception| is_of(exception, *scenario, *why)) {
            wrong.push(format!("{scenario}\n    not {rule}, and on no list: {why}"));
        }
    }
    let all = listed.iter().flat_map(|it| it.scenarios.iter().map(move |name| (*name, it.why)));
    for (scenario, why) in all.filter(|(name, _)| !found.iter().any(|(found, _)| found == name)) {
        wrong.push(format!("{scenario}\n    listed without need, it is {rule}: {why}"));
    }
    wrong
}

/// Every scenario, by its page and its rules.
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
