//! Everything public has an example that runs.
//!
//! Rejected rustdoc's own lint, `missing_doc_code_examples`: it is unstable, it asks inherent
//!          `impl` blocks for an example, and it passes over what a private module defines and
//!          the crate re-exports, which is most of a well-made interface.
//! Always   Reads text, and may: `unreachable_pub` makes `pub` mean public, and rustfmt puts every
//!          item and every closing brace where this expects them.
//! Not read Fields, variants, constants, aliases and modules: their type's example shows them.

use super::Violation;
use super::tree::{File, Tree};

const RULE: &str = "example";

/// The crates that other people program against.
const SOURCES: &[&str] = &[
    "crates/tidegate-core/src/",
    "crates/tidegate-macros/src/",
    "crates/tidegate-redis/src/",
    "crates/tidegate-tower/src/",
    "crates/tidegate/src/",
];

/// Fences with these words hold Rust that is at least compiled.
const COMPILED: &[&str] = &["", "rust", "no_run", "should_panic", "compile_fail"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let is_ours = |path: &str| SOURCES.iter().any(|prefix| path.starts_with(prefix));
    let files = tree.files().filter(|file| is_ours(&file.path) && file.extension() == "rs");
    files.flat_map(without_example).collect()
}

fn without_example(file: &File) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut preamble = Preamble::default();
    // The indentation of the public trait that we are in.
    let mut in_trait: Option<usize> = None;
    for (number, line) in file.lines() {
        let indent = line.len() - line.trim_start().len();
        if preamble.takes(line.trim()) {
            continue;
        }
        let is_method = in_trait.is_some_and(|outer| indent == outer + 4);
        if let Some(item) = item(line.trim(), is_method, &preamble)
            && preamble.lacks_example()
        {
            violations.push(violation(file, number, &item));
        }
        preamble = Preamble::default();
        if in_trait == Some(indent) && line.trim() == "}" {
            in_trait = None;
        } else if item_words(line.trim()).first() == Some(&"trait") && !line.ends_with('}') {
            in_trait = Some(indent);
        }
    }
    violations
}

fn violation(file: &File, line: usize, item: &str) -> Violation {
    let what =
        format!("`{item}` is public and its documentation has no example that runs; add one");
    Violation { path: file.path.clone(), line, rule: RULE, what }
}

/// What stands above an item: its documentation and attributes.
#[derive(Default)]
struct Preamble {
    has_example: bool,
    /// Hidden, only for tests, or documented from elsewhere.
    exempt: bool,
    exported: bool,
    inside: Inside,
}

/// What the lines so far have opened and not closed.
#[derive(Default, PartialEq)]
enum Inside {
    #[default]
    Nothing,
    Fence,
    Attribute,
}

impl Preamble {
    /// Whether the line belongs above an item, in which case it has been noted.
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

/// What the line declares, if that needs an example: `fn check`, `struct Limit`, `macro limit`.
fn item(line: &str, is_method: bool, preamble: &Preamble) -> Option<String> {
    if preamble.exported
        && let Some(rest) = line.strip_prefix("macro_rules! ")
    {
        return Some(format!("macro {}", name(rest)));
    }
    let words = if is_method { significant(line) } else { item_words(line) };
    match words[..] {
        [kind @ ("fn" | "struct" | "enum" | "union" | "trait"), rest, ..] => {
            Some(format!("{kind} {}", name(rest)))
        }
        _ => None,
    }
}

/// The words of a public item from its kind on; none if it is not public.
fn item_words(line: &str) -> Vec<&str> {
    line.strip_prefix("pub ").map(significant).unwrap_or_default()
}

fn significant(line: &str) -> Vec<&str> {
    let qualifiers = ["const", "async", "unsafe", "extern", "\"C\""];
    line.split_whitespace().skip_while(|word| qualifiers.contains(word)).collect()
}

fn name(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The items that are reported for this text.
    fn reported(text: &str) -> Vec<String> {
        let tree = Tree::of(&[("crates/tidegate-core/src/limit.rs", text)]);
        let item = |violation: Violation| violation.what.split('`').nth(1).unwrap().to_owned();
        check(&tree).into_iter().map(item).collect()
    }

    #[test]
    fn public_items_without_an_example_are_found() {
        let text = "//! Limits.\n\npub fn a() {}\n/// Doc.\npub const fn b<T>() {}\n\
                    /// Doc.\n#[derive(\n    Debug,\n)]\npub struct C;\npub enum D {}\n\
                    impl C {\n    /// Doc.\n    pub fn e(&self) {}\n}\n\
                    #[macro_export]\nmacro_rules! f {\n}\n";
        assert_eq!(reported(text), ["fn a", "fn b", "struct C", "enum D", "fn e", "macro f"]);
    }

    #[test]
    fn an_example_above_the_attributes_counts() {
        let text = "/// Doc.\n///\n/// ```\n/// x();\n/// ```\n#[must_use]\n// Why.\npub fn a() {}\n\
                    /// ```rust,no_run\n/// x();\n/// ```\npub struct B;\n";
        assert_eq!(reported(text), [""; 0]);
    }

    #[test]
    fn an_example_counts_for_one_item_only() {
        let text = "/// ```\n/// x();\n/// ```\npub fn a() {}\npub fn b() {}\n";
        assert_eq!(reported(text), ["fn b"]);
    }

    #[test]
    fn what_does_not_run_is_no_example() {
        for info in ["text", "ignore", "toml", "rust,ignore", "scenario"] {
            let text = format!("/// ```{info}\n/// x\n/// ```\npub fn a() {{}}\n");
            assert_eq!(reported(&text), ["fn a"], "{info}");
        }
    }

    #[test]
    fn methods_of_public_traits_are_public() {
        let text = "/// ```\n/// ```\npub trait Clock: Send {\n    /// Doc.\n    fn now(&self);\n\
                    \x20   /// ```\n    /// ```\n    fn later(&self) {\n        fn inner() {}\n    }\n\
                    \x20   const MAX: u32;\n}\n\nimpl Clock for A {\n    fn now(&self) {}\n}\n";
        assert_eq!(reported(text), ["fn now"]);
    }

    #[test]
    fn what_is_not_public_or_hidden_or_shown_by_its_type_needs_none() {
        let text = "fn a() {}\npub(crate) fn b() {}\npub use x::y;\npub mod c;\n\
                    pub const D: u32 = 1;\npub type E = u32;\n#[doc(hidden)]\npub fn f() {}\n\
                    #[doc = include_str!(\"../README.md\")]\npub struct G;\n\
                    trait H {\n    fn i();\n}\n    pub field: u32,\nmacro_rules! j {\n}\n";
        assert_eq!(reported(text), [""; 0]);
    }

    #[test]
    fn only_what_people_program_against_is_read() {
        assert!(check(&Tree::of(&[("xtask/src/a.rs", "pub fn a() {}\n")])).is_empty());
        assert!(check(&Tree::of(&[("crates/tidegate/tests/a.rs", "pub fn a() {}\n")])).is_empty());
        assert!(!check(&Tree::of(&[("crates/tidegate/src/a.rs", "pub fn a() {}\n")])).is_empty());
    }
}
