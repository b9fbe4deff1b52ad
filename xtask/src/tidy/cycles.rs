//! Modules depend on each other in one direction only.
//!
//! The modules of one folder form a graph: an edge for every path in `use crate::…`, `use super::…` or written
//! in full in the code. No edge may be part of a cycle. A file deep in a folder counts as the folder.
//!
//! Not read Code for tests (`#[cfg(test)]`); a module that uses its own children, or its parent.
//! Always   A re-exported name counts as a use of the module that defines it.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::imports::{self, Origin, Path};
use super::rust_source::{self, Line};
use super::tree::{File, Tree};

const RULE: &str = "cycle";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let crates = tree.crates().into_iter().map(|name| format!("crates/{name}/src"));
    crates.chain(["xtask/src".to_owned()]).flat_map(|source| check_crate(tree, &source)).collect()
}

fn check_crate(tree: &Tree, source: &str) -> Vec<Violation> {
    let modules = Modules::read(tree, source);
    let mut graphs: BTreeMap<Path, Graph> = BTreeMap::new();
    for (path, module) in &modules.by_path {
        for (line, named) in &module.named {
            let target = modules.resolve(path, named);
            let shared = path.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if shared == path.len() || shared == target.len() {
                continue;
            }
            let edge = (path[shared].clone(), target[shared].clone());
            let place = (module.file.clone(), *line);
            graphs.entry(path[..shared].to_vec()).or_default().edges.entry(edge).or_insert(place);
        }
    }
    graphs.into_values().flat_map(|graph| graph.violations()).collect()
}

/// The uses between the modules of one folder, each with the first place that shows it.
#[derive(Default)]
struct Graph {
    edges: BTreeMap<(String, String), (String, usize)>,
}

impl Graph {
    fn violations(&self) -> Vec<Violation> {
        let back = |from: &str, to: &str| self.way(to, from);
        let found = self.edges.iter().filter_map(|((from, to), (path, line))| {
            let cycle = back(from, to)?.join("` uses `");
            let what = format!("`{from}` uses `{cycle}`: move what they share below them, or turn one import around");
            Some(Violation { path: path.clone(), line: *line, rule: RULE, what })
        });
        found.collect()
    }

    /// The shortest way along the edges, both ends included.
    fn way(&self, from: &str, to: &str) -> Option<Vec<&str>> {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let start = self.edges.keys().find(|(user, _)| user == from)?.0.as_str();
        let mut ways = vec![vec![start]];
        while !ways.is_empty() {
            let mut longer = Vec::new();
            for way in ways {
                let end = *way.last().expect("a way has a start");
                if end == to {
                    return Some(way);
                }
                if seen.insert(end) {
                    let next = self.edges.keys().filter(|(user, _)| user == end);
                    longer
                        .extend(next.map(|(_, used)| [way.clone(), vec![used.as_str()]].concat()));
                }
            }
            ways = longer;
        }
        None
    }
}

#[derive(Default)]
struct Module {
    file: String,
    /// Every path of the own crate that the code names, and its line.
    named: Vec<(usize, Path)>,
    /// Names that `use` brings into the module, and what they stand for.
    imported: BTreeMap<String, Path>,
}

struct Modules {
    by_path: BTreeMap<Path, Module>,
}

impl Modules {
    fn read(tree: &Tree, source: &str) -> Self {
        let inside = |file: &&File| {
            let rest = file.path.strip_prefix(source).and_then(|rest| rest.strip_prefix('/'));
            file.extension() == "rs" && rest.is_some_and(|rest| !rest.starts_with("bin/"))
        };
        let files: Vec<&File> = tree.files().filter(inside).collect();
        let mut by_path = BTreeMap::new();
        let mut tests: Vec<Path> = Vec::new();
        let paths: BTreeSet<Path> =
            files.iter().map(|file| module_path(&file.path, source)).collect();
        for file in files {
            let path = module_path(&file.path, source);
            let lines = rust_source::lines(&file.text);
            tests.extend(test_modules(&path, &lines));
            by_path.insert(path.clone(), module(file, &path, &lines, &paths));
        }
        by_path.retain(|path: &Path, _| !tests.iter().any(|test| path.starts_with(test)));
        Self { by_path }
    }

    /// The module that defines what `named` names, as far as that can be followed.
    fn resolve(&self, from: &[String], named: &[String]) -> Path {
        let mut at: Path = Vec::new();
        let mut rest: Vec<String> = named.to_vec();
        // A chain of re-exports is short; the bound only ends circular ones.
        for _ in 0..20 {
            while let Some(name) = rest.first() {
                let deeper = [at.as_slice(), std::slice::from_ref(name)].concat();
                if !self.by_path.contains_key(&deeper) {
                    break;
                }
                at = deeper;
                rest.remove(0);
            }
            let imported = rest.first().and_then(|name| self.by_path.get(&at)?.imported.get(name));
            match imported {
                Some(target) if at != from => {
                    rest = [target.as_slice(), &rest[1..]].concat();
                    at = Vec::new();
                }
                _ => break,
            }
        }
        at
    }
}

/// `["a", "b"]` for `src/a/b.rs` and `src/a/b/mod.rs`; empty for the root.
fn module_path(file: &str, source: &str) -> Path {
    let stem = file[source.len() + 1..].trim_end_matches(".rs");
    let mut path: Path = stem.split('/').map(str::to_owned).collect();
    if ["mod", "lib", "main"].contains(&path.last().map_or("", String::as_str)) {
        path.pop();
    }
    path
}

/// The modules that the file declares for tests only.
fn test_modules(path: &[String], lines: &[Line]) -> Vec<Path> {
    let names = lines.iter().filter(|line| line.is_test).filter_map(|line| {
        let code = line.code.trim();
        code.strip_suffix(';')?.split_once("mod ").map(|(_, name)| name.to_owned())
    });
    names.map(|name| [path, &[name]].concat()).collect()
}

fn module(file: &File, path: &Path, lines: &[Line], paths: &BTreeSet<Path>) -> Module {
    let mut module = Module { file: file.path.clone(), ..Module::default() };
    for import in imports::imports(lines) {
        let is_use = import.origin != Origin::Inline;
        let Some(absolute) = absolute(path, &import.path, is_use, paths) else { continue };
        module.named.push((import.line, absolute.clone()));
        if is_use {
            module.imported.insert(import.name, absolute);
        }
    }
    module
}

/// The path from the root of the crate; none if it leads to another crate.
fn absolute(
    from: &[String],
    named: &[String],
    is_use: bool,
    paths: &BTreeSet<Path>,
) -> Option<Path> {
    let supers = named.iter().take_while(|name| *name == "super").count();
    match named.first().map(String::as_str) {
        Some("crate") => Some(named[1..].to_vec()),
        Some("self") => Some([from, &named[1..]].concat()),
        Some("super") => {
            Some([&from[..from.len().checked_sub(supers)?], &named[supers..]].concat())
        }
        Some(name) if is_use => {
            let child = [from, &[name.to_owned()]].concat();
            paths.contains(&child).then(|| [from, named].concat())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks files of the crate `a`.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let place = |path: &str| format!("crates/a/src/{path}");
        let files: Vec<(String, &str)> =
            files.iter().map(|(path, text)| (place(path), *text)).collect();
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let what = |violation: Violation| {
            let cycle = violation.what.split(':').next().unwrap_or("").replace("` uses `", " ");
            format!(
                "{}:{} {}",
                &violation.path["crates/a/src/".len()..],
                violation.line,
                cycle.replace('`', "")
            )
        };
        check(&Tree::of(&files)).into_iter().map(what).collect()
    }

    #[test]
    fn modules_that_use_each_other_are_found_with_the_whole_cycle() {
        let files = [
            ("lib.rs", "mod b;\nmod c;\nmod d;\n"),
            ("b.rs", "use crate::c::C;\n"),
            ("c.rs", "\nuse super::{\n    d::{self, D},\n};\n"),
            ("d.rs", "fn f() -> crate::b::B {}\n"),
        ];
        assert_eq!(found(&files), ["b.rs:1 b c d b", "c.rs:2 c d b c", "d.rs:1 d b c d"]);
        assert_eq!(found(&files[..3]), [""; 0]);
    }

    #[test]
    fn a_file_deep_in_a_folder_stands_for_the_folder() {
        let files = [
            ("b/mod.rs", ""),
            ("b/x/y.rs", "use crate::c::C;\n"),
            ("c.rs", "use crate::b::x::X;\n"),
        ];
        assert_eq!(found(&files), ["b/x/y.rs:1 b c b", "c.rs:1 c b c"]);
    }

    #[test]
    fn the_modules_of_a_folder_are_checked_too() {
        let files = [
            ("b/mod.rs", "mod x;\nmod y;\npub use x::X;\n"),
            ("b/x.rs", "use super::y;\n"),
            ("b/y.rs", "use crate::b::X;\n"),
        ];
        assert_eq!(found(&files), ["b/x.rs:1 x y x", "b/y.rs:1 y x y"]);
    }

    #[test]
    fn a_re_exported_name_counts_as_its_module() {
        let files = [
            ("lib.rs", "mod b;\nmod c;\npub use b::{B as Renamed, Other};\n"),
            ("b.rs", "use crate::c;\n"),
            ("c.rs", "use crate::Renamed;\n"),
        ];
        assert_eq!(found(&files), ["b.rs:1 b c b", "c.rs:1 c b c"]);
    }

    #[test]
    fn tests_parents_and_children_make_no_cycle() {
        let files = [
            ("b.rs", "use crate::c::C;\n"),
            ("c.rs", "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n"),
            ("d/mod.rs", "mod e;\nuse e::E;\n#[cfg(test)]\nmod tests;\n"),
            ("d/e.rs", "use super::D;\npub(in crate::d) struct E;\n"),
            ("d/tests.rs", "use super::e::E;\nuse crate::b::B;\n"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }
}
