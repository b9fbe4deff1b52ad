//! Splits Rust source into code and prose, and finds the code that is compiled for tests only.
//!
//! Not a parser: it knows comments, string and character literals, and braces. Other lints read the
//! result as text.

/// One line of a Rust file.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Line {
    /// The code, with the content of literals removed.
    pub(super) code: String,
    /// The text of comments and string literals.
    pub(super) prose: String,
    /// Whether an item under `#[cfg(test)]` covers the line.
    pub(super) is_test: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Code,
    LineComment,
    BlockComment {
        depth: usize,
    },
    /// A string literal; a raw one ends with a quote and this many `#`.
    Text {
        raw_hashes: Option<usize>,
    },
}

/// Splits the file; line 1 is at index 0.
pub(super) fn lines(text: &str) -> Vec<Line> {
    let mut splitter = Splitter { state: State::Code, lines: vec![Line::default()] };
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[splitter.step(c, rest)..];
    }
    mark_tests(&mut splitter.lines);
    splitter.lines
}

struct Splitter {
    state: State,
    lines: Vec<Line>,
}

impl Splitter {
    /// Consumes the start of `rest`, whose first character is `c`, and returns how many bytes.
    fn step(&mut self, c: char, rest: &str) -> usize {
        if c == '\n' {
            if self.state == State::LineComment {
                self.state = State::Code;
            }
            self.lines.push(Line::default());
            return 1;
        }
        match self.state {
            State::Code => self.code(c, rest),
            State::LineComment => self.prose(c),
            State::BlockComment { depth } => self.block_comment(c, rest, depth),
            State::Text { raw_hashes } => self.text(c, rest, raw_hashes),
        }
    }

    fn line(&mut self) -> &mut Line {
        self.lines.last_mut().expect("there is one line from the start")
    }

    fn prose(&mut self, c: char) -> usize {
        self.line().prose.push(c);
        c.len_utf8()
    }

    fn code(&mut self, c: char, rest: &str) -> usize {
        if rest.starts_with("//") {
            self.state = State::LineComment;
            return 2;
        }
        if rest.starts_with("/*") {
            self.state = State::BlockComment { depth: 1 };
            return 2;
        }
        if let Some((hashes, length)) = self.raw_string(rest) {
            self.state = State::Text { raw_hashes: Some(hashes) };
            return length;
        }
        if c == '"' {
            self.state = State::Text { raw_hashes: None };
            self.line().prose.push(' ');
        } else if c == '\'' {
            return self.character(rest);
        }
        self.line().code.push(c);
        c.len_utf8()
    }

    /// The number of `#` and the length of what opens a raw string here.
    fn raw_string(&self, rest: &str) -> Option<(usize, usize)> {
        let code = &self.lines.last()?.code;
        if code.ends_with(|c: char| c.is_alphanumeric() || c == '_') && !code.ends_with('b') {
            return None;
        }
        let after = rest.strip_prefix('r')?;
        let hashes = after.len() - after.trim_start_matches('#').len();
        after[hashes..].starts_with('"').then_some((hashes, hashes + 2))
    }

    /// A character literal is skipped; a lifetime is code.
    fn character(&mut self, rest: &str) -> usize {
        let inside = &rest[1..];
        let end = match inside.strip_prefix('\\') {
            Some(escaped) => {
                escaped.char_indices().skip(1).find(|&(_, c)| c == '\'').map(|(at, _)| at + 3)
            }
            None => inside
                .chars()
                .next()
                .and_then(|c| inside[c.len_utf8()..].starts_with('\'').then(|| c.len_utf8() + 2)),
        };
        self.line().code.push('\'');
        end.unwrap_or(1)
    }

    fn block_comment(&mut self, c: char, rest: &str, depth: usize) -> usize {
        if rest.starts_with("*/") {
            self.state = match depth {
                1 => State::Code,
                _ => State::BlockComment { depth: depth - 1 },
            };
            return 2;
        }
        if rest.starts_with("/*") {
            self.state = State::BlockComment { depth: depth + 1 };
            return 2;
        }
        self.prose(c)
    }

    fn text(&mut self, c: char, rest: &str, raw_hashes: Option<usize>) -> usize {
        match raw_hashes {
            None if c == '\\' => {
                let escaped = rest[1..].chars().next();
                // A line that ends in a backslash goes on in the next one.
                let skipped = escaped.filter(|&c| c != '\n').map_or(0, char::len_utf8);
                self.line().prose.push(' ');
                1 + skipped
            }
            None if c == '"' => self.close(1),
            Some(hashes) if c == '"' && rest[1..].starts_with(&"#".repeat(hashes)) => {
                self.close(1 + hashes)
            }
            _ => self.prose(c),
        }
    }

    fn close(&mut self, length: usize) -> usize {
        self.state = State::Code;
        self.line().code.push('"');
        self.line().prose.push('.');
        length
    }
}

/// Marks each item that stands under an attribute such as `#[cfg(test)]`.
fn mark_tests(lines: &mut [Line]) {
    let mut next = 0;
    while next < lines.len() {
        if is_test_attribute(lines[next].code.trim()) {
            let end = item_end(lines, next);
            for line in &mut lines[next..=end] {
                line.is_test = true;
            }
            next = end;
        }
        next += 1;
    }
}

fn is_test_attribute(code: &str) -> bool {
    let condition = code.strip_prefix("#[cfg(").or_else(|| code.strip_prefix("#![cfg("));
    condition.is_some_and(|rest| {
        ["test)", "test,", "all(test", "any(test", "tidegate_loom", "tidegate_shuttle"]
            .iter()
            .any(|prefix| rest.starts_with(prefix))
    })
}

/// The last line of the item whose attribute is on line `start`.
fn item_end(lines: &[Line], start: usize) -> usize {
    if lines[start].code.trim().starts_with("#!") {
        return lines.len() - 1;
    }
    let mut depth = 0_usize;
    let mut is_use = false;
    for (index, line) in lines.iter().enumerate().skip(start) {
        let code = line.code.trim();
        if depth == 0 && code.starts_with("#[") {
            continue;
        }
        is_use |= depth == 0 && (code.starts_with("use ") || code.starts_with("pub use "));
        for c in code.chars() {
            match c {
                '{' | '(' | '[' => depth += 1,
                '}' | ')' | ']' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 && c == '}' && !is_use {
                        return index;
                    }
                }
                ';' | ',' if depth == 0 => return index,
                _ => {}
            }
        }
    }
    lines.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Vec<String> {
        lines(text).into_iter().map(|line| line.code.trim().to_owned()).collect()
    }

    fn prose(text: &str) -> String {
        lines(text).into_iter().map(|line| line.prose).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn comments_and_literals_are_prose_and_the_rest_is_code() {
        assert_eq!(code("a(); // b\n/* c\n d */ e();"), ["a();", "", "e();"]);
        assert_eq!(prose("a(); // b\n/* c\n d */ e();"), " b| c| d ");
        assert_eq!(code(r#"f("{ // no", 'x', '\'', '"');"#), [r#"f("", ', ', ');"#]);
        assert_eq!(prose(r#"f("no \"end\" yet");"#), " no  end  yet.");
        assert_eq!(code("f(r#\"a \" b\"#, 1);"), ["f(\", 1);"]);
        assert_eq!(code("fn f<'a>(x: &'a str) {}"), ["fn f<'a>(x: &'a str) {}"]);
        assert_eq!(code("/* a /* b */ c */ d"), ["d"]);
    }

    #[test]
    fn items_under_cfg_test_are_marked_to_their_end() {
        let text = "use a;\n#[cfg(test)]\nuse b::{c};\nuse d;\n#[cfg(all(test, x))]\n#[path = \"e\"]\n\
                    mod e {\n    fn f() {}\n}\nuse g;\n#[cfg(test)]\nmod tests;\nfn h() {}\n";
        let marked: Vec<usize> = (1..)
            .zip(lines(text))
            .filter(|(_, line)| line.is_test)
            .map(|(number, _)| number)
            .collect();
        assert_eq!(marked, [2, 3, 5, 6, 7, 8, 9, 11, 12]);
    }
}
