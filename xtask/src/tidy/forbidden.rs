//! Text that no file may contain, or few: promises, skipped tests, waiting, `unsafe`, paths of one machine.
//!
//! Always   Each row says which files it reads and what to write instead. Comments count: a doc
//!          example that sleeps is a test that sleeps.

use super::tree::{File, Tree};
use super::words::has_word;
use super::{OWN_SOURCES, Violation};

struct Forbidden {
    rule: &'static str,
    /// The extensions of the files it applies to; none means every text file.
    extensions: &'static [&'static str],
    /// Paths that begin like this may contain it.
    allowed: &'static [&'static str],
    texts: &'static [&'static str],
    matches: fn(line: &str, text: &str) -> bool,
    remedy: &'static str,
}

const FORBIDDEN: &[Forbidden] = &[
    Forbidden {
        rule: "promise",
        extensions: &["rs", "md", "toml", "lua"],
        allowed: &[],
        texts: &["TODO", "FIXME", "XXX"],
        matches: has_word,
        remedy: "do it now, or write down the decision not to",
    },
    Forbidden {
        rule: "promise",
        extensions: &["rs", "md", "toml", "lua"],
        allowed: &[],
        texts: &["todo!(", "unimplemented!(", "dbg!("],
        matches: |line, text| line.contains(text),
        remedy: "finish the code before it is committed",
    },
    Forbidden {
        rule: "skipped test",
        extensions: &["rs"],
        allowed: &[],
        texts: &["#[ignore", "```ignore"],
        matches: |line, text| line.contains(text),
        remedy: "repair the test or delete it; what is too slow for everyone goes behind a command",
    },
    Forbidden {
        rule: "sleep",
        extensions: &["rs"],
        allowed: &["crates/tidegate/src/clock"],
        texts: &["thread::sleep"],
        matches: |line, text| line.contains(text),
        remedy: "wait through tidegate::clock, so that a manual clock can end the wait",
    },
    Forbidden {
        rule: "unsafe",
        extensions: &["rs"],
        // Measured to pay, explained where it stands, and named in ARCHITECTURE.md.
        allowed: &[
            "crates/tidegate/src/store/memory/prefetch.rs",
            // The attribute is put on an unsafe function.
            "crates/tidegate-macros/tests/functions.rs",
        ],
        texts: &["unsafe_code"],
        matches: has_word,
        remedy: "the compiler denies `unsafe`; where it is measured to pay, add the file to the list in xtask/src/tidy/forbidden.rs \
                 and to ARCHITECTURE.md",
    },
    Forbidden {
        rule: "machine path",
        extensions: &[],
        allowed: &[],
        texts: &["/root/", "/home/", "/work/"],
        matches: has_absolute,
        remedy: "it exists on one machine only; write it relative to the repository",
    },
];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let files = tree.files().filter(|file| !file.path.starts_with(OWN_SOURCES));
    files.flat_map(|file| FORBIDDEN.iter().flat_map(|row| found(row, file))).collect()
}

fn found(row: &Forbidden, file: &File) -> Vec<Violation> {
    let reads = row.extensions.is_empty() || row.extensions.contains(&file.extension());
    if !reads || row.allowed.iter().any(|prefix| file.path.starts_with(prefix)) {
        return Vec::new();
    }
    let violation = |line: usize, text: &str| Violation {
        path: file.path.clone(),
        line,
        rule: row.rule,
        what: format!("`{text}`: {}", row.remedy),
    };
    file.lines()
        .flat_map(|(number, line)| {
            let texts = row.texts.iter().filter(move |text| (row.matches)(line, text));
            texts.map(move |text| violation(number, text))
        })
        .collect()
}

/// Whether a path starts with `directory`, as opposed to having it in its middle or in a URL.
fn has_absolute(line: &str, directory: &str) -> bool {
    line.match_indices(directory).any(|(start, _)| {
        let before = &line[..start];
        let inside = |c: char| c.is_alphanumeric() || "._-~$)}*".contains(c);
        !before.ends_with(inside) && !before.ends_with(":/")
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    #[test]
    fn promises_are_found() {
        let text = "// TODO: later\nfn f() {\n    todo!()\n}\n// FIXME\n// XXX\n";
        let text = text.to_owned() + "unimplemented!()\ndbg!(x)\n";
        let tree = Tree::of(&[("crates/a/src/lib.rs", &text)]);
        let lines: Vec<usize> = check(&tree).iter().map(|violation| violation.line).collect();
        assert_eq!(lines, [1, 5, 6, 3, 7, 8]);
        for path in ["README.md", "Cargo.toml", "crates/a/lua/x.lua"] {
            assert_eq!(places(&check(&Tree::of(&[(path, "TODO")]))), [format!("{path}:1")]);
        }
    }

    #[test]
    fn a_lint_named_after_a_promise_is_none() {
        let text = "todo = \"warn\"\ndbg_macro = \"warn\"\nMASTODON\nXXXL\n";
        assert!(check(&Tree::of(&[("Cargo.toml", text)])).is_empty());
    }

    #[test]
    fn skipped_tests_and_skipped_examples_are_found() {
        let text = "#[test]\n#[ignore = \"slow\"]\nfn f() {}\n/// ```ignore\n";
        let tree = Tree::of(&[("crates/a/tests/x.rs", text)]);
        assert_eq!(places(&check(&tree)), ["crates/a/tests/x.rs:2", "crates/a/tests/x.rs:4"]);
    }

    #[test]
    fn only_the_clock_sleeps() {
        let text = "std::thread::sleep(wait);\n";
        let tree = Tree::of(&[
            ("crates/tidegate/src/clock/system.rs", text),
            ("crates/tidegate/src/clock.rs", text),
            ("crates/tidegate/src/store.rs", text),
            ("clippy.toml", text),
        ]);
        assert_eq!(places(&check(&tree)), ["crates/tidegate/src/store.rs:1"]);
    }

    #[test]
    fn unsafe_code_is_where_the_list_says() {
        let text = "#![allow(unsafe_code)]\n";
        let tree = Tree::of(&[
            ("crates/tidegate/src/store/memory/prefetch.rs", text),
            ("crates/tidegate/src/gate.rs", text),
            ("Cargo.toml", "unsafe_code = \"deny\"\n"),
        ]);
        assert_eq!(places(&check(&tree)), ["crates/tidegate/src/gate.rs:1"]);
    }

    #[test]
    fn paths_of_one_machine_are_found_in_any_text_file() {
        for text in ["/root/x", "see `/home/me/x`", "COPY /work/a /b", "file:///home/me"] {
            assert_eq!(places(&check(&Tree::of(&[(".ci/run", text)]))), [".ci/run:1"], "{text}");
        }
        for text in ["docs/home/x", "https://a.b/work/", "https://work/", "~/work/", "$X/root/"] {
            assert!(check(&Tree::of(&[(".ci/run", text)])).is_empty(), "{text}");
        }
    }

    #[test]
    fn tidy_may_name_what_it_forbids() {
        assert!(check(&Tree::of(&[("xtask/src/tidy/forbidden.rs", "TODO /root/ ")])).is_empty());
        assert!(!check(&Tree::of(&[("xtask/src/test.rs", "TODO")])).is_empty());
    }
}
