//! Links between our own Markdown files lead somewhere.
//!
//! Always   Needs no network: addresses with a scheme are not followed. Code, fenced or between
//!          backticks, is no link.

use super::Violation;
use super::tree::{File, Tree};

const RULE: &str = "link";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let documents = tree.files().filter(|file| file.extension() == "md");
    documents.flat_map(|file| broken(tree, file)).collect()
}

fn broken(tree: &Tree, file: &File) -> Vec<Violation> {
    let leads_nowhere = |target: &str| {
        let path = target.split('#').next().unwrap_or("");
        is_ours(target) && !resolve(&file.path, path).is_some_and(|path| tree.has(&path))
    };
    let found = links(file).into_iter().filter(|(_, target)| leads_nowhere(target));
    found.map(|(line, target)| violation(file, line, &target)).collect()
}

fn violation(file: &File, line: usize, target: &str) -> Violation {
    let what = format!(
        "`{target}` is not in the repository; correct the path, which starts at this file's \
         directory, or remove the link"
    );
    Violation { path: file.path.clone(), line, rule: RULE, what }
}

/// Every `[…](target)` outside of code, with its line.
fn links(file: &File) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for (number, line) in file.lines() {
        let start = line.trim_start();
        match fence {
            Some(open) if start.starts_with(open) => fence = None,
            Some(_) => {}
            None => {
                fence = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
                if fence.is_none() {
                    found.extend(targets(line).map(|target| (number, target)));
                }
            }
        }
    }
    found
}

fn targets(line: &str) -> impl Iterator<Item = String> {
    let prose = without_code(line);
    let rests: Vec<String> = prose.split("](").skip(1).map(str::to_owned).collect();
    rests.into_iter().filter_map(|rest| target(&rest))
}

/// What the parentheses hold, without a title: `a.md "Title")…` or `<a b.md>)…`.
fn target(rest: &str) -> Option<String> {
    if let Some(bracketed) = rest.strip_prefix('<') {
        return Some(bracketed.split_once('>')?.0.to_owned());
    }
    let inside = rest.split_once(')')?.0;
    Some(inside.split_whitespace().next().unwrap_or("").to_owned())
}

/// The line with the content of its code spans cut out; a lone backtick opens nothing.
fn without_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    let is_prose = |index: usize| index.is_multiple_of(2) || index + 1 == parts.len();
    let prose = parts.iter().enumerate().filter(|(index, _)| is_prose(*index));
    prose.map(|(_, part)| *part).collect()
}

fn is_ours(target: &str) -> bool {
    let has_scheme = target.split_once(':').is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    });
    !has_scheme && !target.starts_with('#')
}

/// The path from the root, or nothing if it leaves the repository.
fn resolve(from: &str, link: &str) -> Option<String> {
    if link.is_empty() || link.starts_with('/') {
        return None;
    }
    let directory = from.rsplit_once('/').map_or("", |(directory, _)| directory);
    let mut parts: Vec<&str> = Vec::new();
    for part in directory.split('/').chain(link.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    fn check_guide(text: &str) -> Vec<Violation> {
        check(&Tree::of(&[("docs/guide.md", text), ("docs/start here.md", ""), ("README.md", "")]))
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let text = "[a](../README.md) and [b](missing.md)\n\n![c](../image.png \"Title\")\n";
        assert_eq!(places(&check_guide(text)), ["docs/guide.md:1", "docs/guide.md:3"]);
        for bad in ["[x](README.md)", "[x](/README.md)", "[x](../../main/README.md)", "[x]()"] {
            assert_eq!(places(&check_guide(bad)), ["docs/guide.md:1"], "{bad}");
        }
        assert_eq!(places(&check_guide("[`code`](missing.md#part)")), ["docs/guide.md:1"]);
    }

    #[test]
    fn links_to_files_directories_and_parts_are_followed() {
        for good in [
            "[x](../README.md)",
            "[x](../README.md#part \"Title\")",
            "[x](guide.md)",
            "[x](<start here.md>)",
            "[x](./)",
            "[x](../docs/)",
            "[x](..)",
        ] {
            assert!(check_guide(good).is_empty(), "{good}");
        }
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        for other in ["https://a.b/c", "http://a.b", "mailto:a@b.c", "#part"] {
            assert!(check_guide(&format!("[x]({other})")).is_empty(), "{other}");
        }
    }

    #[test]
    fn code_is_no_link() {
        assert!(check_guide("```rust\nlet x = a[0](b);\n```\nand `a[0](b)`\n").is_empty());
        assert_eq!(places(&check_guide("```\n```\n[x](y)\n")), ["docs/guide.md:3"]);
        assert_eq!(places(&check_guide("a ` alone [x](y)\n")), ["docs/guide.md:1"]);
    }

    #[test]
    fn other_files_are_not_read() {
        assert!(check(&Tree::of(&[("src/a.rs", "//! [x](y)")])).is_empty());
    }
}
