//! What a reader would look up has an example that runs: each type, trait, function and macro at the
//! root of a crate that people program against.
//!
//! A method needs none: its type's example shows the main ones. Neither do items that are public only in
//! a module, because those are rarely used.
//!
//! Rejected rustdoc's own lint, `missing_doc_code_examples`: it is unstable, wants an example for every
//!          `impl` block, and misses what a private module defines and the crate re-exports.
//! Always   Relies on rustfmt: items at the top level of a file start in the first column.

use std::collections::BTreeSet;

use super::Violation;
use super::imports::{self, Origin};
use super::rust_source;
use super::tree::{File, Tree};

const RULE: &str = "example";

/// The crates that other people program against. `tidegate-core` and `tidegate-http` are not among them: people use their items
/// through `tidegate` and `tidegate-tower`.
const CRATES: &[&str] = &["tidegate", "tidegate-macros", "tidegate-redis", "tidegate-tower"];

/// Fences with these words hold Rust that is at least compiled.
const COMPILED: &[&str] = &["", "rust", "no_run", "should_panic", "compile_fail"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    CRATES.iter().flat_map(|name| check_crate(tree, &format!("crates/{name}/src/"))).collect()
}

fn check_crate(tree: &Tree, source: &str) -> Vec<Violation> {
    let root = tree.file(&format!("{source}lib.rs")).map(exported).unwrap_or_default();
    let files =
        tree.files().filter(|file| file.path.starts_with(source) && file.extension() == "rs");
    files.flat_map(|file| without_example(file, &root)).collect()
}

/// The names that the root of the crate re-exports.
fn exported(root: &File) -> BTreeSet<String> {
    let imports = imports::imports(&rust_source::lines(&root.text)).into_iter();
    let exported = imports.filter(|import| import.origin == Origin::Exported);
    exported.filter_map(|mut import| import.path.pop()).collect()
}

fn without_example(file: &File, root: &BTreeSet<String>) -> Vec<Violation> {
    let is_root = file.path.ends_with("/src/lib.rs");
    let mut violations = Vec::new();
    let mut preamble = Preamble::default();
    for (number, line) in file.lines() {
        if preamble.takes(line.trim()) {
            continue;
        }
        if let Some(item) = item(line, &preamble)
            && (is_root || item.kind == "macro" || root.contains(item.name))
            && preamble.lacks_example()
        {
            violations.push(violation(file, number, &item));
        }
        preamble = Preamble::default();
    }
    violations
}

fn violation(file: &File, line: usize, Item { kind, name }: &Item<'_>) -> Violation {
    let what = format!(
        "`{kind} {name}` is at the root of its crate and its documentation has no example that runs; \
         add one, or move the item into a public module"
    );
    Violation { path: file.path.clone(), line, rule: RULE, what }
}

/// The documentation and the attributes above an item.
#[derive(Default)]
struct Preamble {
    has_example: bool,
    /// The item is hidden, only for tests, or documented in another file.
    exempt: bool,
    exported: bool,
    inside: Inside,
}

/// The construct that the lines so far have opened and not closed.
#[derive(Default, PartialEq)]
enum Inside {
    #[default]
    Nothing,
    Fence,
    Attribute,
}

impl Preamble {
    /// Reads a line that can precede an item, and returns whether it is one.
    fn takes(&mut self, line: &str) -> bool {
        if let Some(doc) = line.strip_prefix("///") {
            self.note_doc(doc.trim());
            return true;
        }
        if self.inside == Inside::Attribute || line.starts_with("#[") || line.starts_with("$(#[") {
            self.note_attribute(line);
            return true;
        }
        line.is_empty() || line.starts_with("//")
    }

    fn note_doc(&mut self, doc: &str) {
        let Some(info) = doc.strip_prefix("```") else { return };
        if self.inside == Inside::Fence {
            self.inside = Inside::Nothing;
            return;
        }
        self.has_example |= info.split(',').all(|word| COMPILED.contains(&word.trim()));
        self.inside = Inside::Fence;
    }

    fn note_attribute(&mut self, line: &str) {
        self.exported |= line == "#[macro_export]";
        let exempts = ["doc(hidden)", "#[cfg(test)]", "include_str!", "$(#["];
        self.exempt |= exempts.iter().any(|text| line.contains(text));
        let closes = line.ends_with(']') || line.starts_with("$(#[");
        self.inside = if closes { Inside::Nothing } else { Inside::Attribute };
    }

    fn lacks_example(&self) -> bool {
        !self.has_example && !self.exempt
    }
}

struct Item<'a> {
    kind: &'a str,
    name: &'a str,
}

/// The public item that the line declares, if it is of a kind that needs an example.
fn item<'a>(line: &'a str, preamble: &Preamble) -> Option<Item<'a>> {
    if preamble.exported
        && let Some(rest) = line.strip_prefix("macro_rules! ")
    {
        return Some(Item { kind: "macro", name: name(rest) });
    }
    let qualifiers = ["const", "async", "unsafe", "extern", "\"C\""];
    let words = line.strip_prefix("pub ")?.split_whitespace();
    let mut words = words.skip_while(|word| qualifiers.contains(word));
    match (words.next()?, words.next()?) {
        (kind @ ("fn" | "struct" | "enum" | "union" | "trait"), rest) => {
            Some(Item { kind, name: name(rest) })
        }
        _ => None,
    }
}

fn name(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The items that are reported for this text, all of whose names the root exports.
    fn reported(text: &str) -> Vec<String> {
        let root = "pub use limit::{a, b, C, D, f, G as Renamed};\n";
        let tree = Tree::of(&[
            ("crates/tidegate/src/lib.rs", root),
            ("crates/tidegate/src/limit.rs", text),
        ]);
        let item = |violation: Violation| violation.what.split('`').nth(1).unwrap().to_owned();
        check(&tree).into_iter().map(item).collect()
    }

    #[test]
    fn items_at_the_root_without_an_example_are_found() {
        let text = "//! Limits.\n\npub fn a() {}\n/// Doc.\npub const fn b<T>() {}\n\
                    /// Doc.\n#[derive(\n    Debug,\n)]\npub struct C;\npub enum D {}\n\
                    #[macro_export]\nmacro_rules! e {\n}\npub trait G {}\n";
        assert_eq!(reported(text), ["fn a", "fn b", "struct C", "enum D", "macro e", "trait G"]);
        let tree = Tree::of(&[("crates/tidegate/src/lib.rs", "pub fn a() {}\n")]);
        assert_eq!(check(&tree).len(), 1);
    }

    #[test]
    fn an_example_above_the_attributes_counts() {
        let text = "/// Doc.\n///\n/// ```\n/// x();\n/// ```\n#[must_use]\n// Why.\npub fn a() {}\n\
                    /// ```rust,no_run\n/// x();\n/// ```\npub struct C;\n";
        assert_eq!(reported(text), [""; 0]);
    }

    #[test]
    fn an_example_counts_for_one_item_only() {
        let text = "/// ```\n/// x();\n/// ```\npub fn a() {}\npub fn b() {}\n";
        assert_eq!(reported(text), ["fn b"]);
    }

    #[test]
    fn an_example_that_does_not_run_does_not_count() {
        for info in ["text", "ignore", "toml", "rust,ignore", "scenario"] {
            let text = format!("/// ```{info}\n/// x\n/// ```\npub fn a() {{}}\n");
            assert_eq!(reported(&text), ["fn a"], "{info}");
        }
    }

    #[test]
    fn methods_and_items_that_the_root_does_not_export_need_none() {
        let text = "pub fn other() {}\nfn a() {}\npub(crate) fn b() {}\npub use x::y;\npub mod c;\n\
                    pub const D: u32 = 1;\npub type E = u32;\n#[doc(hidden)]\npub fn f() {}\n\
                    #[doc = include_str!(\"../README.md\")]\npub struct G;\n\
                    impl C {\n    pub fn a(&self) {}\n}\nmacro_rules! j {\n}\n";
        assert_eq!(reported(text), [""; 0]);
    }

    #[test]
    fn only_crates_that_people_program_against_are_read() {
        assert!(check(&Tree::of(&[("xtask/src/lib.rs", "pub fn a() {}\n")])).is_empty());
        assert!(
            check(&Tree::of(&[("crates/tidegate-bench/src/lib.rs", "pub fn a() {}\n")])).is_empty()
        );
    }
}
