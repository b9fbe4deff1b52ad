//! The committed ceilings: for each case the instructions of a decision, and the compiler and processor that counted.
//!
//! Always   A malformed line, a case without a ceiling and a ceiling without a case are errors: a case that is not
//!          compared would stay green forever.
//! Always   Counts are compared as integers; percentages are only printed.

use std::fmt::Write as _;

use anyhow::{Context as _, bail, ensure};

/// How far a count may be above its ceiling, because another compiler version changes counts a little.
const ABOVE_PERCENT_MAX: u64 = 10;
/// How far a ceiling may be above its count; more would hide the next slow-down.
const BELOW_PERCENT_MAX: u64 = 15;

const HEADER: &str = "\
# Instructions of one decision. `cargo xtask instructions` fails if a case takes 10 % more, and
# `cargo xtask instructions --write` counts anew. The cases are in src/bin.
";
const COUNTED_BY: &str = "# Counted by ";

/// One line: a case, and the instructions of one decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) case: String,
    pub(super) instructions: u64,
}

/// The parsed file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ceilings {
    pub(super) counts: Vec<Count>,
    /// The compiler and the processor of the counts.
    pub(super) counted_by: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    TooMany,
    Fine,
    LowerTheCeiling,
}

impl Ceilings {
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut ceilings = Self { counts: Vec::new(), counted_by: String::new() };
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(counted_by) = line.strip_prefix(COUNTED_BY) {
                counted_by.clone_into(&mut ceilings.counted_by);
            } else if !line.trim().is_empty() && !line.starts_with('#') {
                let count = count(line).with_context(|| format!("line {number}: `{line}`"))?;
                ensure!(ceilings.of(&count.case).is_none(), "line {number}: `{line}` comes twice");
                ceilings.counts.push(count);
            }
        }
        Ok(ceilings)
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{HEADER}{COUNTED_BY}{}\n\n", self.counted_by);
        for Count { case, instructions } in &self.counts {
            writeln!(text, "{case} = {instructions}").expect("a string can be written to");
        }
        text
    }

    pub(super) fn of(&self, case: &str) -> Option<u64> {
        self.counts.iter().find(|count| count.case == case).map(|count| count.instructions)
    }

    /// Checks that there is one ceiling for each of these cases, and no other.
    pub(super) fn are_for(&self, cases: &[String]) -> anyhow::Result<()> {
        if let Some(case) = cases.iter().find(|case| self.of(case).is_none()) {
            bail!(
                "the case `{case}` has no ceiling; add it with `cargo xtask instructions --write`"
            );
        }
        if let Some(gone) = self.counts.iter().find(|count| !cases.contains(&count.case)) {
            bail!("there is a ceiling for `{}`, which is no case; delete its line", gone.case);
        }
        Ok(())
    }
}

fn count(line: &str) -> anyhow::Result<Count> {
    let (case, instructions) = line.split_once('=').context("expected `case = instructions`")?;
    let instructions = instructions.trim().parse().context("expected a whole number")?;
    ensure!(instructions > 0, "no decision takes 0 instructions");
    Ok(Count { case: case.trim().to_owned(), instructions })
}

pub(super) fn judge(counted: u64, ceiling: u64) -> Verdict {
    if counted * 100 > ceiling * (100 + ABOVE_PERCENT_MAX) {
        Verdict::TooMany
    } else if counted * 100 < ceiling * (100 - BELOW_PERCENT_MAX) {
        Verdict::LowerTheCeiling
    } else {
        Verdict::Fine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ceilings(counts: &[(&str, u64)]) -> Ceilings {
        let count = |(case, instructions): &(&str, u64)| Count {
            case: (*case).into(),
            instructions: *instructions,
        };
        Ceilings { counts: counts.iter().map(count).collect(), counted_by: "cargo 1 on x".into() }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let written = ceilings(&[("gate-allowed", 43), ("check-all-of-two", 6_596)]);
        assert!(written.text().ends_with(
            "# Counted by cargo 1 on x\n\ngate-allowed = 43\ncheck-all-of-two = 6596\n"
        ));
        assert_eq!(Ceilings::parse(&written.text()).unwrap(), written);
    }

    #[test]
    fn a_line_that_is_not_understood_is_named() {
        for bad in ["gate-allowed", "gate-allowed = many", "gate-allowed = -1", "gate-allowed = 0"]
        {
            let error = Ceilings::parse(&format!("# Counts\n{bad}\n")).unwrap_err();
            assert!(format!("{error:#}").starts_with(&format!("line 2: `{bad}`: ")), "{error:#}");
        }
        let error = Ceilings::parse("a = 1\na = 2\n").unwrap_err();
        assert_eq!(error.to_string(), "line 2: `a = 2` comes twice");
    }

    #[test]
    fn cases_and_ceilings_are_the_same() {
        let two = ceilings(&[("a", 1), ("b", 2)]);
        let are_for = |cases: &[&str]| {
            two.are_for(&cases.iter().map(|case| (*case).to_owned()).collect::<Vec<_>>())
        };
        assert!(are_for(&["b", "a"]).is_ok());
        assert!(are_for(&["a", "b", "c"]).unwrap_err().to_string().contains("`c` has no ceiling"));
        assert!(are_for(&["a"]).unwrap_err().to_string().contains("`b`, which is no case"));
    }

    #[test]
    fn a_tenth_more_is_fine_and_one_more_is_not() {
        assert_eq!(judge(110, 100), Verdict::Fine);
        assert_eq!(judge(111, 100), Verdict::TooMany);
        assert_eq!(judge(85, 100), Verdict::Fine);
        assert_eq!(judge(84, 100), Verdict::LowerTheCeiling);
    }
}
