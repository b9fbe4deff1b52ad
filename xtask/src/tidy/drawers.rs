//! No drawers: a file or directory is named for the one thing in it.
//!
//! Always   `tests/common/` is no exception; what tests share has a name too.

use super::Violation;
use super::tree::Tree;

const RULE: &str = "drawer";

const DRAWERS: &[&str] = &["common", "helper", "helpers", "misc", "types", "util", "utils"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let paths = tree.files().map(|file| file.path.as_str());
    paths.filter_map(|path| Some((path, drawer(path)?))).map(violation).collect()
}

/// The first part of the path that is a drawer's name, with or without an extension.
fn drawer(path: &str) -> Option<&str> {
    let stems = path.split('/').map(|part| part.split_once('.').map_or(part, |(stem, _)| stem));
    stems.into_iter().find(|stem| DRAWERS.contains(stem))
}

fn violation((path, drawer): (&str, &str)) -> Violation {
    let what = format!(
        "`{drawer}` says nothing about what is inside; name it for the one thing it holds, or \
         move the code to its caller"
    );
    Violation { path: path.to_owned(), line: 1, rule: RULE, what }
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    #[test]
    fn drawers_are_found_as_files_and_as_directories() {
        let tree = Tree::of(&[
            ("crates/tidegate/src/types.rs", ""),
            ("crates/tidegate/tests/common/mod.rs", ""),
            ("docs/utils.md", ""),
        ]);
        assert_eq!(
            places(&check(&tree)),
            [
                "crates/tidegate/src/types.rs:1",
                "crates/tidegate/tests/common/mod.rs:1",
                "docs/utils.md:1"
            ]
        );
    }

    #[test]
    fn a_name_that_merely_contains_one_is_fine() {
        let tree = Tree::of(&[("src/utility_meter.rs", ""), ("src/uncommon.rs", "")]);
        assert!(check(&tree).is_empty());
    }
}
