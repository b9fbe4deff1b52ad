//! Files that belong together have the same stem: an algorithm, its specification and its Lua script; a law of
//! adaptive limits and its page.
//!
//! Always   Both directions are checked: no algorithm without a specification, and no
//!          specification that nothing implements.

use std::collections::BTreeSet;

use super::Violation;
use super::tree::Tree;

const RULE: &str = "twins";

const ALGORITHMS: FileSet = FileSet {
    directory: "crates/tidegate-core/src/algorithm",
    extension: "rs",
    // The trait, the enum of all algorithms, and arithmetic that several of them share.
    others: &["mod.rs", "dispatch.rs", "window.rs"],
};
const SPECIFICATIONS: FileSet =
    FileSet { directory: "spec", extension: "md", others: &["README.md", "LANGUAGE.md"] };
const SCRIPTS: FileSet = FileSet {
    directory: "crates/tidegate-redis/lua",
    extension: "lua",
    // Drivers and commands have folders of their own.
    others: &[],
};

/// Laws of adaptive limits: they obey no rule text, so they have pages of their own and no Lua twin.
const LAWS: FileSet = FileSet {
    directory: "crates/tidegate-core/src/load/adaptive",
    extension: "rs",
    // The type itself, its tests, and what the laws share.
    others: &["mod.rs", "tests.rs", "round.rs", "baseline.rs"],
};
const LAW_PAGES: FileSet =
    FileSet { directory: "spec/adaptive", extension: "md", others: &["README.md"] };

/// A directory with one file for each algorithm or law.
struct FileSet {
    directory: &'static str,
    extension: &'static str,
    /// Files in the directory that belong to no single algorithm.
    others: &'static [&'static str],
}

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = missing(tree, &ALGORITHMS, &SPECIFICATIONS);
    violations.extend(missing(tree, &SPECIFICATIONS, &ALGORITHMS));
    violations.extend(missing(tree, &LAWS, &LAW_PAGES));
    violations.extend(missing(tree, &LAW_PAGES, &LAWS));
    if tree.has(SCRIPTS.directory) {
        violations.extend(missing(tree, &ALGORITHMS, &SCRIPTS));
        violations.extend(missing(tree, &SCRIPTS, &ALGORITHMS));
    }
    violations
}

fn missing(tree: &Tree, here: &FileSet, there: &FileSet) -> Vec<Violation> {
    let twins = there.stems(tree);
    let alone = here.stems(tree).into_iter().filter(|stem| !twins.contains(stem));
    alone.map(|stem| violation(here.path(stem), &there.path(stem))).collect()
}

fn violation(path: String, twin: &str) -> Violation {
    let what = format!(
        "its twin {twin} is missing; write it, or if this file is no algorithm, list it in \
         xtask/src/tidy/twins.rs"
    );
    Violation { path, line: 1, rule: RULE, what }
}

impl FileSet {
    fn stems<'a>(&self, tree: &'a Tree) -> BTreeSet<&'a str> {
        let mut names = tree.names_in(self.directory, self.extension);
        names.retain(|name| !self.others.contains(name));
        names.into_iter().filter_map(|name| Some(name.rsplit_once('.')?.0)).collect()
    }

    fn path(&self, stem: &str) -> String {
        format!("{}/{stem}.{}", self.directory, self.extension)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    const GCRA: (&str, &str) = ("crates/tidegate-core/src/algorithm/gcra.rs", "");
    const GCRA_SPEC: (&str, &str) = ("spec/gcra.md", "");
    const GCRA_LUA: (&str, &str) = ("crates/tidegate-redis/lua/gcra.lua", "");

    #[test]
    fn an_algorithm_without_a_specification_is_found() {
        assert_eq!(
            places(&check(&Tree::of(&[GCRA]))),
            ["crates/tidegate-core/src/algorithm/gcra.rs:1"]
        );
    }

    #[test]
    fn a_specification_without_an_algorithm_is_found() {
        assert_eq!(places(&check(&Tree::of(&[GCRA_SPEC]))), ["spec/gcra.md:1"]);
    }

    #[test]
    fn scripts_count_once_there_are_any() {
        assert!(check(&Tree::of(&[GCRA, GCRA_SPEC])).is_empty());
        assert!(check(&Tree::of(&[GCRA, GCRA_SPEC, GCRA_LUA])).is_empty());
        let tree = Tree::of(&[GCRA, GCRA_SPEC, ("crates/tidegate-redis/lua/fixed_window.lua", "")]);
        assert_eq!(
            places(&check(&tree)),
            [
                "crates/tidegate-core/src/algorithm/gcra.rs:1",
                "crates/tidegate-redis/lua/fixed_window.lua:1"
            ]
        );
    }

    #[test]
    fn a_law_has_a_page_and_a_page_a_law_and_neither_needs_lua() {
        let law = ("crates/tidegate-core/src/load/adaptive/vegas.rs", "");
        let page = ("spec/adaptive/vegas.md", "");
        assert!(check(&Tree::of(&[law, page, GCRA, GCRA_SPEC, GCRA_LUA])).is_empty());
        assert_eq!(places(&check(&Tree::of(&[law]))), [format!("{}:1", law.0)]);
        assert_eq!(places(&check(&Tree::of(&[page]))), [format!("{}:1", page.0)]);
    }

    #[test]
    fn shared_files_need_no_twin() {
        let tree = Tree::of(&[
            ("crates/tidegate-core/src/algorithm/mod.rs", ""),
            ("crates/tidegate-core/src/algorithm/dispatch.rs", ""),
            ("crates/tidegate-redis/lua/driver/cell.lua", ""),
            ("spec/LANGUAGE.md", ""),
        ]);
        assert!(check(&tree).is_empty());
    }
}
