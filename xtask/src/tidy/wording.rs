//! Prose names its actor: finds the sentences that leave the reader to guess who acts.
//!
//! A help, not a censor: it knows a few patterns. A sentence can pass and still be hard to read.

use super::rust_source;
use super::tree::{File, Tree};
use super::{OWN_SOURCES, Violation};

const RULE: &str = "wording";

/// "who" is clear after one of these: `a client who`, `callers, who`.
const ACTORS: &[&str] = &[
    "administrator",
    "administrators",
    "anyone",
    "attacker",
    "attackers",
    "caller",
    "callers",
    "client",
    "clients",
    "customer",
    "customers",
    "developer",
    "developers",
    "engineer",
    "engineers",
    "maintainer",
    "maintainers",
    "operator",
    "operators",
    "people",
    "person",
    "reader",
    "readers",
    "reviewer",
    "reviewers",
    "someone",
    "tenant",
    "tenants",
    "user",
    "users",
    "visitor",
    "visitors",
];

/// Word sequences that always have a plainer form, and that form.
const PHRASES: &[(&[&str], &str)] = &[
    (&["whoever"], "name the actor: the caller, the client, a thread"),
    (&["whomever"], "name the actor: the caller, the client, a thread"),
    (&["whom"], "name the actor: the caller, the client, a thread"),
    (&["nobody"], "say `no caller`, `no thread`, `no request`"),
    (&["everybody"], "say `every caller`, `every thread`, `all requests`"),
    (&["those", "who"], "name the actor: `callers that`, `clients that`"),
    (&["be", "it"], "state the condition: `even if`, `whether or not`"),
    (&["so", "many"], "give the number or its name"),
    (&["as", "often", "as"], "give the number or its name"),
    (&["unless", "told"], "say `default: …`"),
    (&["in", "the", "shadow"], "say `in shadow mode`"),
    (&["who", "may", "ask"], "say `access control`"),
    (&["has", "nothing", "to", "do", "with"], "say what is independent of what"),
    (&["for", "want", "of"], "say what is missing"),
];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    tree.files().filter(|file| is_read(file)).flat_map(found).collect()
}

fn is_read(file: &File) -> bool {
    if file.path.starts_with(OWN_SOURCES) || file.path.contains("/seeds/") {
        return false;
    }
    let parts: Vec<&str> = file.path.split('/').collect();
    let is_product = match parts[..] {
        [_] => file.extension() == "md",
        ["crates", ..] => true,
        [root, ..] => ["xtask", "examples", "deploy", "docs", "spec"].contains(&root),
        [] => false,
    };
    is_product
        && ["rs", "md", "lua", "yml", "service", "toml", "py", "js", "html"]
            .contains(&file.extension())
}

fn found(file: &File) -> Vec<Violation> {
    let words = words(file);
    let mut violations = doc_openings(file);
    let mut next = 0;
    while next < words.len() {
        let (length, remedy) = judge(&words, next);
        if let Some(remedy) = remedy {
            let text: Vec<&str> =
                words[next..next + length].iter().map(|word| word.text.as_str()).collect();
            violations.push(violation(file, words[next].line, &text.join(" "), remedy));
        }
        next += length;
    }
    violations
}

fn violation(file: &File, line: usize, text: &str, remedy: &str) -> Violation {
    Violation { path: file.path.clone(), line, rule: RULE, what: format!("`{text}`: {remedy}") }
}

/// How many words the pattern at `at` has, and what to write instead if it is one.
fn judge(words: &[Word], at: usize) -> (usize, Option<&'static str>) {
    for (phrase, remedy) in PHRASES {
        let here = words[at..].iter().zip(*phrase).filter(|(word, wanted)| word.text == **wanted);
        if here.count() == phrase.len() {
            return (phrase.len(), Some(remedy));
        }
    }
    if words[at].text != "who" {
        return (1, None);
    }
    let before = at.checked_sub(1).map(|before| &words[before]);
    let is_clear = before.is_some_and(|word| !word.ends && ACTORS.contains(&word.text.as_str()));
    let remedy = "put the actor before it (`the client who`), or make it the subject (`the client that`); \
                  known actors are in xtask/src/tidy/wording.rs";
    (1, (!is_clear).then_some(remedy))
}

/// Functions whose documentation opens with a question word instead of a verb.
fn doc_openings(file: &File) -> Vec<Violation> {
    if file.extension() != "rs" {
        return Vec::new();
    }
    let mut violations = Vec::new();
    let mut opening: Option<(usize, &str)> = None;
    for (number, line) in file.lines() {
        let line = line.trim();
        if let Some(doc) = line.strip_prefix("///") {
            opening = opening.or(Some((number, doc.trim())));
        } else if !line.starts_with("#[") {
            if let Some((number, doc)) = opening.filter(|_| declares_function(line))
                && let Some(word) =
                    ["What", "Who"].into_iter().find(|word| doc.split(' ').next() == Some(word))
            {
                let remedy = "document a function with a verb: `Returns…`, `Waits until…`";
                violations.push(violation(file, number, &format!("/// {word}"), remedy));
            }
            opening = None;
        }
    }
    violations
}

fn declares_function(line: &str) -> bool {
    let qualifiers = ["pub", "const", "async", "unsafe"];
    let mut words = line.split_whitespace();
    let word = words.find(|word| !qualifiers.contains(word) && !word.starts_with("pub("));
    word == Some("fn")
}

struct Word {
    line: usize,
    /// In lower case, without punctuation.
    text: String,
    /// Whether a sentence or a table cell ends after it.
    ends: bool,
}

fn words(file: &File) -> Vec<Word> {
    prose(file).into_iter().flat_map(|(line, text)| line_words(line, &text)).collect()
}

fn line_words(line: usize, text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let text = without_code(text);
    for word in text.split_whitespace() {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        // Code between backticks is not prose.
        if bare.is_empty() || word.contains('`') || word.contains('_') {
            if let Some(last) = words.last_mut() {
                last.ends = true;
            }
            continue;
        }
        let ends = word.ends_with(['.', ':', ';', '!', '?', '|']);
        words.push(Word { line, text: bare.to_lowercase(), ends });
    }
    words
}

/// The line with a lone backtick for each code span.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<&str>>().join(" ` ")
}

/// The text for readers, by line.
fn prose(file: &File) -> Vec<(usize, String)> {
    match file.extension() {
        "rs" => (1..)
            .zip(rust_source::lines(&file.text))
            .map(|(number, line)| (number, line.prose))
            .collect(),
        "md" => outside_fences(file),
        _ => file.lines().map(|(number, line)| (number, line.to_owned())).collect(),
    }
}

fn outside_fences(file: &File) -> Vec<(usize, String)> {
    let mut inside = false;
    let mut prose = Vec::new();
    for (number, line) in file.lines() {
        let is_fence = line.trim_start().starts_with("```");
        inside ^= is_fence;
        if !inside && !is_fence {
            prose.push((number, line.to_owned()));
        }
    }
    prose
}

#[cfg(test)]
mod tests {
    use super::super::tests::places;
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let tree = Tree::of(&[(path, text)]);
        check(&tree).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_who_without_an_actor_is_found_in_comments_strings_and_prose() {
        let text = "/// Wakes who waits.\nfn f() {\n    panic!(\"who comes late is denied\");\n}\n";
        assert_eq!(lines("crates/a/src/b.rs", text), [1, 3]);
        assert_eq!(lines("docs/a.md", "It is for\nwho asks first.\n\nWho waits?\n"), [2, 4]);
        assert_eq!(lines("README.md", "Nobody waits, so many are there.\n"), [1, 1]);
        assert_eq!(
            lines("crates/a/src/b.rs", "// Whoever comes\n// first, unless\n// told.\n"),
            [1, 2]
        );
    }

    #[test]
    fn a_who_after_an_actor_is_fine_also_across_lines() {
        assert_eq!(
            lines("crates/a/src/b.rs", "// A client\n// who waits, and callers, who ask.\n"),
            [0; 0]
        );
        assert_eq!(lines("docs/a.md", "Here is a client. Who waits is denied.\n"), [1]);
    }

    #[test]
    fn code_is_not_prose() {
        assert_eq!(lines("docs/a.md", "```\nwho waits\n```\nThe field `who` is a name.\n"), [0; 0]);
        assert_eq!(lines("crates/a/src/b.rs", "fn nobody(who: u8) {}\n"), [0; 0]);
    }

    #[test]
    fn a_function_is_documented_with_a_verb() {
        let text = "/// What it costs.\n#[must_use]\npub(crate) const fn cost() {}\n/// What it costs.\npub cost: u32,\n";
        assert_eq!(lines("crates/a/src/b.rs", text), [1]);
    }

    #[test]
    fn tests_are_read_and_seeds_are_not() {
        let tree = Tree::of(&[
            ("crates/a/tests/b.rs", "// Whoever"),
            ("fuzz/seeds/x.md", "Whoever"),
            ("docs/a.md", "Whoever"),
        ]);
        assert_eq!(places(&check(&tree)), ["crates/a/tests/b.rs:1", "docs/a.md:1"]);
    }
}
