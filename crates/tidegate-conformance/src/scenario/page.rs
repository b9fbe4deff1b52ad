//! Finds the scenarios of a Markdown page: its fenced blocks with the language `scenario`.
//!
//! Always   A block that is not closed, or whose language is similar to `scenario`, is an error: otherwise it would never be
//!          checked.

use super::{Scenario, ScenarioError, parse};

/// Parses all scenarios of a page. `page` is its name, for messages.
pub fn read_page(page: &str, text: &str) -> Result<Vec<Scenario>, ScenarioError> {
    let mut scenarios = Vec::new();
    let mut open: Option<Block<'_>> = None;
    for (index, line) in text.lines().enumerate() {
        match &mut open {
            Some(block) if block.is_closed_by(line) => {
                if block.is_scenario {
                    scenarios.push(parse::scenario(page, block.line, &block.lines)?);
                }
                open = None;
            }
            Some(block) => block.lines.push((index + 1, line)),
            None => open = Block::opened_by(page, index + 1, line)?,
        }
    }
    match open {
        Some(block) => Err(ScenarioError::new(page, block.line, "this block is never closed")),
        None => Ok(scenarios),
    }
}

struct Block<'t> {
    line: usize,
    /// Returns whether the line closes the block: it needs at least as many backticks as the opening line.
    fence: usize,
    is_scenario: bool,
    lines: Vec<(usize, &'t str)>,
}

impl<'t> Block<'t> {
    fn opened_by(page: &str, line: usize, text: &'t str) -> Result<Option<Self>, ScenarioError> {
        let (fence, name) = fence(text);
        if fence < 3 {
            return Ok(None);
        }
        let is_scenario = name == "scenario";
        if !is_scenario && name.to_ascii_lowercase().starts_with("scenar") {
            let message = format!("a block called `{name}`: expected `scenario`");
            return Err(ScenarioError::new(page, line, message));
        }
        Ok(Some(Self { line, fence, is_scenario, lines: Vec::new() }))
    }

    fn is_closed_by(&self, text: &str) -> bool {
        let (length, name) = fence(text);
        length >= self.fence && name.is_empty()
    }
}

/// Returns the number of backticks at the start of the line, and the text after them.
fn fence(line: &str) -> (usize, &str) {
    let line = line.trim();
    let name = line.trim_start_matches('`');
    (line.len() - name.len(), name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "limit 1/s\nat 0s take 1 allow\n";

    #[test]
    fn only_blocks_called_scenario_are_read() {
        let text = format!("# T\n```scenario\n{ONE}```\n\n```text\nnot one\n```\n");
        let scenarios = read_page("p.md", &text).unwrap();
        assert_eq!(scenarios.len(), 1);
        assert_eq!((scenarios[0].line, scenarios[0].steps[0].line), (2, 4));
    }

    #[test]
    fn a_block_inside_a_longer_fence_is_only_shown() {
        let text = format!("````text\n```scenario\n{ONE}```\n````\n");
        assert_eq!(read_page("p.md", &text).unwrap(), []);
    }

    #[test]
    fn a_block_that_is_never_closed_is_an_error() {
        let error = read_page("p.md", &format!("\n```scenario\n{ONE}")).unwrap_err();
        assert_eq!(error.to_string(), "p.md:2: this block is never closed");
    }

    #[test]
    fn a_block_that_is_nearly_called_scenario_is_an_error() {
        let error = read_page("p.md", "```Scenarios\n```\n").unwrap_err();
        assert_eq!(error.to_string(), "p.md:1: a block called `Scenarios`: expected `scenario`");
    }
}
