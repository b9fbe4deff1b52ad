//! Every crate is named like its directory, obeys the workspace's lints, is on the map in
//! ARCHITECTURE.md, and depends only on crates above it there.
//!
//! Always   Reads manifests as lines. The few shapes that cargo accepts and this does not know,
//!          like `package = { name = … }`, are reported and not passed over.
//! Not read Dependencies for tests: a test may use any crate.

use std::collections::BTreeSet;

use super::Violation;
use super::tree::Tree;
use super::words::has_word;

const MAP: &str = "ARCHITECTURE.md";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    tree.crates().into_iter().flat_map(|name| manifest(tree, name)).collect()
}

fn manifest(tree: &Tree, name: &str) -> Vec<Violation> {
    let path = format!("crates/{name}/Cargo.toml");
    let violation =
        |what: String| Violation { path: path.clone(), line: 1, rule: "manifest", what };
    let Some(file) = tree.file(&path) else {
        return vec![violation("is missing; only crates live in crates/".to_owned())];
    };
    let mut violations = Vec::new();
    if value(&file.text, "lints.workspace") != Some("true") {
        violations
            .push(violation("does not obey the lints; add `[lints] workspace = true`".into()));
    }
    let package = value(&file.text, "package.name").unwrap_or("").trim_matches('"');
    if package != name {
        violations.push(violation(format!(
            "the package is called `{package}` and its directory `{name}`; rename one of them"
        )));
    }
    violations
}

/// The value of a dotted key, however its table is written.
fn value<'a>(manifest: &'a str, key: &str) -> Option<&'a str> {
    let mut table = "";
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            table = header.trim_end_matches(']');
        } else if let Some((name, value)) = line.split_once('=') {
            let full = if table.is_empty() { "" } else { "." };
            if format!("{table}{full}{}", name.trim()) == key {
                return Some(value.split('#').next().unwrap_or("").trim());
            }
        }
    }
    None
}

pub(super) fn architecture(tree: &Tree) -> Vec<Violation> {
    let map = tree.file(MAP).map_or("", |file| &file.text);
    let crates = tree.crates();
    let unnamed = crates.iter().filter(|name| !has_word(map, name)).map(|name| unmapped(name));
    let order = order(map, &crates);
    let against = (0..order.len()).flat_map(|at| {
        let below: Vec<&str> = order[at + 1..].concat();
        order[at].iter().flat_map(|name| upwards(tree, name, &below)).collect::<Vec<Violation>>()
    });
    unnamed.chain(against).collect()
}

fn unmapped(name: &str) -> Violation {
    let what = format!("does not name the crate `{name}`; say what it is for");
    Violation { path: MAP.to_owned(), line: 1, rule: "architecture", what }
}

/// The crates as the diagram lists them, which is the first fenced block: each at the start of a line.
/// Crates on one line, separated by commas, may use each other.
fn order<'a>(map: &'a str, crates: &BTreeSet<&str>) -> Vec<Vec<&'a str>> {
    let diagram = map.split("```").nth(1).unwrap_or("");
    let names = |line: &'a str| line.split_whitespace().map_while(name_in_list(crates)).collect();
    diagram.lines().map(names).collect()
}

fn name_in_list<'a>(crates: &BTreeSet<&str>) -> impl Fn(&'a str) -> Option<&'a str> {
    |word| Some(word.trim_end_matches(',')).filter(|name| crates.contains(name))
}

/// Dependencies on crates that the diagram lists below.
fn upwards(tree: &Tree, name: &str, below: &[&str]) -> Vec<Violation> {
    let path = format!("crates/{name}/Cargo.toml");
    let Some(file) = tree.file(&path) else { return Vec::new() };
    let used = dependencies(&file.text).into_iter().filter(|(_, used)| below.contains(used));
    let violation = |(line, used): (usize, &str)| {
        let what = format!(
            "`{name}` uses `{used}`, which stands below it in {MAP}; turn the dependency around"
        );
        Violation { path: path.clone(), line, rule: "architecture", what }
    };
    used.map(violation).collect()
}

/// The packages in `[dependencies]` and its tables for targets, with their lines.
fn dependencies(manifest: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in (1..).zip(manifest.lines().map(str::trim)) {
        if let Some(header) = line.strip_prefix('[') {
            let table = header.trim_end_matches(']');
            inside = table.ends_with("dependencies") && !table.ends_with("dev-dependencies");
            found.extend(table.strip_prefix("dependencies.").map(|name| (number, name)));
        } else if inside && let Some((name, _)) = line.split_once(['=', '.']) {
            found.push((number, name.trim()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    const CORE: &str = "crates/tidegate-core/Cargo.toml";
    const GOOD: &str = "[package]\nname = \"tidegate-core\"\n\n[lints]\nworkspace = true\n";

    #[test]
    fn a_crate_without_the_lints_is_found() {
        let bare = "[package]\nname = \"tidegate-core\"\n[other]\nworkspace = true\n";
        assert_eq!(check(&Tree::of(&[(CORE, bare)])).len(), 1);
        let off = "[package]\nname = \"tidegate-core\"\n[lints]\nworkspace = false\n";
        assert_eq!(check(&Tree::of(&[(CORE, off)])).len(), 1);
    }

    #[test]
    fn both_ways_to_write_the_lints_are_understood() {
        assert!(check(&Tree::of(&[(CORE, GOOD)])).is_empty());
        let dotted = "lints.workspace = true # all\n[package]\nname = \"tidegate-core\"\n";
        assert!(check(&Tree::of(&[(CORE, dotted)])).is_empty());
    }

    #[test]
    fn a_crate_with_another_name_than_its_directory_is_found() {
        let tree = Tree::of(&[("crates/core/Cargo.toml", GOOD)]);
        assert_eq!(places(&check(&tree)), ["crates/core/Cargo.toml:1"]);
    }

    #[test]
    fn a_directory_that_is_no_crate_is_found() {
        let tree = Tree::of(&[("crates/notes/plan.md", "")]);
        assert_eq!(places(&check(&tree)), ["crates/notes/Cargo.toml:1"]);
    }

    #[test]
    fn a_crate_that_the_map_does_not_name_is_found() {
        let tree = Tree::of(&[
            (CORE, GOOD),
            ("crates/tidegate/Cargo.toml", ""),
            (MAP, "`tidegate-core` decides.\n"),
        ]);
        let violations = architecture(&tree);
        assert_eq!(places(&violations), ["ARCHITECTURE.md:1"]);
        assert!(violations[0].what.contains("`tidegate`"));
    }

    #[test]
    fn without_a_map_every_crate_is_unnamed() {
        assert_eq!(architecture(&Tree::of(&[(CORE, GOOD)])).len(), 1);
    }

    #[test]
    fn a_crate_that_uses_one_below_it_is_found() {
        let map = "```text\n  tidegate-core   pure; used by tidegate\n     │\n  tidegate\n  tidegate-redis\n```\n\
                   ```text\n  tidegate\n```\n";
        let core = "[dependencies]\nserde = \"1\"\ntidegate-redis.workspace = true\n\
                    [dev-dependencies]\ntidegate = { path = \"x\" }\n";
        let redis = "[dependencies]\ntidegate = \"1\"\n[dependencies.tidegate-core]\n";
        let tree = Tree::of(&[
            (MAP, map),
            (CORE, core),
            ("crates/tidegate/Cargo.toml", ""),
            ("crates/tidegate-redis/Cargo.toml", redis),
        ]);
        assert_eq!(places(&architecture(&tree)), [format!("{CORE}:3")]);
    }
}
