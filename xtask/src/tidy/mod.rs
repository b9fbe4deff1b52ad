//! The project's own lints: what the house style says and no other tool enforces.
//!
//! Always   A rule is a pure function from the tree to its violations, with a test that shows it
//!          fail on a bad sample. All violations are reported, not just the first.
//! Always   A violation says what to do about it.

mod cycles;
mod drawers;
mod examples;
mod forbidden;
mod imports;
mod links;
mod manifests;
mod modules;
mod names;
mod rust_source;
mod tree;
mod twins;
mod wording;
mod words;

use std::fmt;

use anyhow::bail;

use crate::workspace::Workspace;
use tree::Tree;

const RULES: &[fn(&Tree) -> Vec<Violation>] = &[
    twins::check,
    drawers::check,
    modules::openings,
    modules::lengths,
    manifests::check,
    manifests::architecture,
    forbidden::check,
    links::check,
    examples::check,
    names::check,
    cycles::check,
    wording::check,
];

/// These files have to spell out what they forbid.
const OWN_SOURCES: &str = "xtask/src/tidy/";

/// Something to repair, where an editor can jump to it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    line: usize,
    rule: &'static str,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.what)
    }
}

pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    let tree = Tree::read(workspace)?;
    let mut violations: Vec<Violation> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    violations.sort();
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => {
            println!("{} files are tidy", tree.files().count());
            Ok(())
        }
        1 => bail!("tidy found the violation above"),
        count => bail!("tidy found the {count} violations above"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `path:line` of each violation, which is what most tests are about.
    pub(super) fn places(violations: &[Violation]) -> Vec<String> {
        violations.iter().map(|found| format!("{}:{}", found.path, found.line)).collect()
    }

    #[test]
    fn a_violation_reads_as_place_rule_and_remedy() {
        let violation = Violation {
            path: "spec/gcra.md".to_owned(),
            line: 7,
            rule: "link",
            what: "`x.md` does not exist; correct the link".to_owned(),
        };
        assert_eq!(
            violation.to_string(),
            "spec/gcra.md:7: link: `x.md` does not exist; correct the link"
        );
    }
}
