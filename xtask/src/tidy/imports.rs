//! Reads the `use` lines of Rust source, and the paths that other code writes in full.

use super::rust_source::Line;

/// Names joined by `::`. For a module: its names from the root of its crate.
pub(super) type Path = Vec<String>;

/// One name that the code takes from elsewhere.
pub(super) struct Import {
    pub(super) line: usize,
    /// As it is written: it may start with `crate`, `super`, `self`, a child module or another crate.
    pub(super) path: Path,
    /// Where the name comes from.
    pub(super) origin: Origin,
    /// What the name is here: its last part, or what follows `as`.
    pub(super) name: String,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Origin {
    /// `pub use`, for other crates.
    Exported,
    /// Any other `use`.
    Used,
    /// A path in the code itself.
    Inline,
}

/// Every import of the file but those for tests.
pub(super) fn imports(lines: &[Line]) -> Vec<Import> {
    let of = |Statement { line, text, origin }: Statement| {
        let import = move |leaf: Leaf| Import { line, path: leaf.path, origin, name: leaf.name };
        leaves(&text).into_iter().map(import)
    };
    statements(lines).into_iter().flat_map(of).collect()
}

struct Statement {
    line: usize,
    /// The tree behind `use`, or a single path.
    text: String,
    origin: Origin,
}

/// Each `use` up to its semicolon, and each `crate::…` or `super::…` in other code.
fn statements(lines: &[Line]) -> Vec<Statement> {
    let mut found = Vec::new();
    let mut open: Option<Statement> = None;
    for (number, line) in (1..).zip(lines).filter(|(_, line)| !line.is_test) {
        let code = line.code.trim();
        if open.is_none() {
            match use_tree(code) {
                Some(tree) => {
                    let exported = code.starts_with("pub use ");
                    let origin = if exported { Origin::Exported } else { Origin::Used };
                    open = Some(Statement { line: number, text: tree.to_owned(), origin });
                }
                None => found.extend(inline(code).map(|path| {
                    let origin = Origin::Inline;
                    Statement { line: number, text: path.to_owned(), origin }
                })),
            }
        } else if let Some(statement) = &mut open {
            statement.text.push_str(code);
        }
        if let Some(mut statement) = open.take_if(|statement| statement.text.contains(';')) {
            statement.text = statement.text.replace(';', "");
            found.push(statement);
        }
    }
    found
}

fn use_tree(code: &str) -> Option<&str> {
    let code = match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
        None => code,
    };
    code.trim_start().strip_prefix("use ")
}

fn inline(code: &str) -> impl Iterator<Item = &str> {
    let starts = ["crate::", "super::"]
        .into_iter()
        .flat_map(|start| code.match_indices(start).map(|(at, _)| at).collect::<Vec<usize>>());
    let is_start = |at: &usize| {
        let before = &code[..*at];
        !before.ends_with(|c: char| c.is_alphanumeric() || "_$:".contains(c))
            && !before.ends_with("(in ")
    };
    starts.filter(is_start).map(|at| {
        let path = &code[at..];
        let end =
            path.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(path.len());
        path[..end].trim_end_matches(':')
    })
}

/// One name that a `use` tree brings in.
struct Leaf {
    path: Path,
    name: String,
}

fn leaves(tree: &str) -> Vec<Leaf> {
    let tree = tree.trim();
    if let Some((prefix, group)) = tree.split_once('{') {
        let prefix: Path = segments(prefix);
        let group = group.strip_suffix('}').unwrap_or(group);
        let inner = branches(group).into_iter().flat_map(leaves);
        return inner
            .map(|leaf| match leaf.path.first().map(String::as_str) {
                Some("self") => {
                    Leaf { name: prefix.last().cloned().unwrap_or_default(), path: prefix.clone() }
                }
                _ => Leaf { path: [prefix.as_slice(), &leaf.path].concat(), name: leaf.name },
            })
            .collect();
    }
    let (path, alias) =
        tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name)));
    let path = segments(path);
    let name = alias.map(str::to_owned).or_else(|| path.last().cloned()).unwrap_or_default();
    if path.is_empty() { Vec::new() } else { vec![Leaf { path, name }] }
}

fn segments(path: &str) -> Path {
    path.split("::").map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The parts of a group, split at the commas that are not in an inner group.
fn branches(group: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let at_top = |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    group.split(at_top).collect()
}

#[cfg(test)]
mod tests {
    use super::super::rust_source;
    use super::*;

    fn read(text: &str) -> Vec<String> {
        let shown = |import: Import| {
            let origin = match import.origin {
                Origin::Exported => "pub ",
                Origin::Used => "",
                Origin::Inline => "inline ",
            };
            format!("{} {origin}{} = {}", import.line, import.name, import.path.join("::"))
        };
        imports(&rust_source::lines(text)).into_iter().map(shown).collect()
    }

    #[test]
    fn trees_are_taken_apart_into_names() {
        assert_eq!(
            read("use a;\npub use b::{self, c as d, e::{F, G}};\n"),
            ["1 a = a", "2 pub b = b", "2 pub d = b::c", "2 pub F = b::e::F", "2 pub G = b::e::G",]
        );
        assert_eq!(read("pub(crate) use crate::{\n    a::B,\n};\n"), ["1 B = crate::a::B"]);
    }

    #[test]
    fn paths_in_code_are_found_and_those_of_macros_and_visibilities_are_not() {
        assert_eq!(
            read("f(crate::a::b(), super::c::<T>());"),
            ["1 inline b = crate::a::b", "1 inline c = super::c",]
        );
        assert!(read("$crate::a::b!(); pub(in crate::a) fn f() {} // crate::c").is_empty());
    }
}
