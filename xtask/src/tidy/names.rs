//! Names that were given up stay given up: the table says what the field calls the thing.
//!
//! A name is retired in one meaning. The scope of a row keeps it free for other meanings elsewhere.

use std::collections::BTreeSet;

use super::Violation;
use super::rust_source;
use super::tree::{File, Tree};

const RULE: &str = "retired name";

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Module,
    Type,
    Function,
}

use Kind::{Function, Module, Type};

/// Kind, paths that begin like this, and `retired → use instead` pairs.
type Row = (Kind, &'static str, &'static [(&'static str, &'static str)]);

const RETIRED: &[Row] = &[
    (
        Module,
        "crates/tidegate/src/",
        &[
            ("homes", "lock_set"),
            ("spot", "target"),
            ("crowd", "permit_queue"),
            ("line", "rate_queue"),
            ("turn", "waiter"),
            ("latch", "spin_mutex, or the mutex of std"),
            ("table", "store"),
            ("room", "overflow"),
            ("memo", "key_cache"),
            ("stages", "arena_tiers"),
            ("watch", "observers"),
            ("terms", "parameters"),
            ("tally", "counters or stats"),
        ],
    ),
    (
        Module,
        "crates/tidegate-core/src/",
        &[
            ("tremble", "clock_skew"),
            ("closed_set", "dispatch"),
            ("twin", "lua_codec"),
            ("leftover", "diagnostics"),
            ("first", "diagnostics"),
            ("near", "diagnostics"),
        ],
    ),
    (
        Module,
        "crates/tidegate-redis/src/",
        &[
            ("exact", "remote"),
            ("shared", "script_codec"),
            ("left", "remaining_cache"),
            ("returns", "deferred_release"),
            ("all", "joint"),
            ("purse", "balance"),
            ("errand", "refill"),
            ("quiet", "cooldown"),
            ("lane", "connection_slot"),
            ("keeper", "reconnect"),
            ("link", "connection"),
            ("tally", "counters or stats"),
        ],
    ),
    (
        Module,
        "crates/tidegate-server/",
        &[
            ("said", "check_body"),
            ("once", "idempotency"),
            ("book", "limit_lookup"),
            ("together", "pipeline"),
            ("wakeful", "busy_poll"),
            ("means", "describe"),
            ("desk", "harness"),
            ("strangers", "unauthenticated"),
            ("crowd", "a name that says of what there are many"),
        ],
    ),
    (
        Module,
        "crates/tidegate-tower/src/",
        &[
            ("manners", "response_policy"),
            ("instead", "fallback"),
            ("away", "rejection"),
            ("passage", "service"),
            ("short", "smallvec"),
            ("standing", "a name that says which"),
            ("form", "a name that says which"),
            ("start", "a name that says which"),
            ("recent", "a name that says which"),
        ],
    ),
    (
        Type,
        "",
        &[
            ("Answer", "a name that says which answer, like Decision or Reply"),
            ("Ask", "a name that says which request, like CheckRequest"),
            ("Asked", "a name that says which request"),
            ("Found", "a name that says what was looked up"),
            ("Heard", "LeaseReply"),
            ("Held", "a name that says what is held"),
            ("Kept", "a name that says what is stored"),
            ("Known", "a name that says what is known"),
            ("Outcome", "a name that says the result of what"),
            ("Place", "a name that says which place"),
            ("Question", "a name that says which request"),
            ("Said", "a name that says which message"),
            ("Shared", "a name that says what is shared"),
            ("Who", "a name that says who: Client, Caller"),
            ("Signpost", "RowLocation"),
            ("Told", "a name that says which message"),
            ("Whom", "CallKey"),
        ],
    ),
    (
        Type,
        "crates/tidegate/src/",
        &[
            ("Crowd", "PermitQueue"),
            ("Land", "Mapping"),
            ("Line", "RateQueue"),
            ("Plot", "ArenaSlot"),
            ("Post", "GateInner"),
            ("Spot", "Target"),
            ("Turn", "Waiter"),
        ],
    ),
    (Type, "crates/tidegate-redis/src/", &[("Errand", "Refill"), ("Purse", "LeaseBalance")]),
    (Type, "crates/tidegate-server/", &[("Desk", "Harness"), ("Door", "Listener")]),
    (
        Type,
        "crates/tidegate-tower/src/",
        &[
            ("By", "a name that says by what"),
            ("Other", "Fallback"),
            ("Manners", "ResponsePolicy"),
            ("Together", "Unkeyed"),
        ],
    ),
    (
        Function,
        "",
        &[
            ("forget_said", "clear_output"),
            ("halves", "split"),
            ("reborn", "restored"),
            ("stranger", "reset_mismatched"),
            ("tremble", "clock_skew"),
            ("welcome", "accept"),
        ],
    ),
    (Function, "crates/tidegate-core/src/", &[("joined", "join")]),
    (
        Function,
        "crates/tidegate-server/src/",
        &[("alone", "reload_lock"), ("is_known", "is_authenticated")],
    ),
    (Function, "crates/tidegate-server/src/protocol/resp/", &[("leave", "close")]),
];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let files = tree.files().filter(|file| {
        let roots = ["crates/", "examples/", "fuzz/", "xtask/"];
        file.extension() == "rs" && roots.iter().any(|root| file.path.starts_with(root))
    });
    files.flat_map(found).collect()
}

fn found(file: &File) -> Vec<Violation> {
    let mut violations: BTreeSet<Violation> = BTreeSet::new();
    for (number, kind, name) in declared(file) {
        for (retired_kind, under, names) in RETIRED {
            if *retired_kind != kind || !file.path.starts_with(under) {
                continue;
            }
            let row = names.iter().find(|(retired, _)| *retired == name);
            violations
                .extend(row.map(|(retired, instead)| violation(file, number, retired, instead)));
        }
    }
    violations.into_iter().collect()
}

fn violation(file: &File, line: usize, retired: &str, instead: &str) -> Violation {
    let what = format!("`{retired}` was given up for a plainer name; use {instead}");
    Violation { path: file.path.clone(), line, rule: RULE, what }
}

/// What the file declares, and the module that it is.
fn declared(file: &File) -> Vec<(usize, Kind, String)> {
    let mut declared = vec![(1, Module, own_module(&file.path).to_owned())];
    for (number, line) in (1..).zip(rust_source::lines(&file.text)) {
        let words: Vec<&str> = line.code.split_whitespace().collect();
        let pairs = words.windows(2).filter_map(|pair| Some((kind(pair[0])?, name(pair[1]))));
        declared.extend(pairs.map(|(kind, name)| (number, kind, name.to_owned())));
    }
    declared
}

/// A module that has a file of its own is reported there, so `mod x;` is not looked at.
fn kind(keyword: &str) -> Option<Kind> {
    match keyword {
        "struct" | "enum" | "union" | "trait" | "type" | "as" => Some(Type),
        "fn" => Some(Function),
        _ => None,
    }
}

fn name(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(text)
}

/// `crowd` for `src/crowd.rs` and for `src/crowd/mod.rs`.
fn own_module(path: &str) -> &str {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    stem.rsplit_once('/').map_or(stem, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    fn check_one(path: &str, text: &str) -> Vec<String> {
        places(&check(&Tree::of(&[(path, text)])))
    }

    #[test]
    fn retired_modules_types_and_functions_are_found() {
        let text =
            "//! x\npub(crate) struct Told {}\nenum Place<T> {}\nasync fn stranger<T>() {}\n";
        let path = "crates/tidegate/src/crowd.rs";
        assert_eq!(check_one(path, text), [1, 2, 3, 4].map(|line| format!("{path}:{line}")));
        let path = "crates/tidegate-server/tests/desk/mod.rs";
        assert_eq!(check_one(path, ""), [format!("{path}:1")]);
    }

    #[test]
    fn a_name_is_free_in_other_meanings() {
        assert!(check_one("crates/tidegate-core/src/rule/line.rs", "struct Turn;\n").is_empty());
        assert!(
            check_one("crates/tidegate/src/store.rs", "// struct Told\nlet told = 1;\n").is_empty()
        );
        assert!(check_one("crates/tidegate/src/store.rs", "struct PlaceHolder;\n").is_empty());
    }
}
