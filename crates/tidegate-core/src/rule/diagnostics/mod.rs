//! Errors of rules: what is wrong, where, and what to write instead.
//!
//! Always   The position is that of the wrong characters in the text as given. The quoted part of the text is bounded and
//!          printable, whatever the input.

mod edit_distance;
pub(super) mod leading_word;
pub(super) mod trailing_word;
pub(super) mod unit_names;
pub(super) mod words;

pub use edit_distance::nearest_name;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::ops::Range;

/// The error of an invalid rule.
///
/// It prints what is wrong and what would be right, and the text with a mark under the wrong characters:
///
/// ```
/// use tidegate_core::ParsedRule;
///
/// let error = "10/d".parse::<ParsedRule>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "unknown unit `d`: did you mean `day`?\n  10/d\n     ^"
/// );
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct RuleError {
    /// The quoted part of the text, and the characters of it to mark.
    excerpt: Box<str>,
    mark: Range<usize>,
    /// The position in the whole text, in bytes.
    span: Range<usize>,
    culprit: Box<str>,
    kind: RuleErrorKind,
}

/// The kind of a [`RuleError`].
///
/// ```
/// use tidegate_core::{ParsedRule, RuleErrorKind};
///
/// let error = "10/s burst 0".parse::<ParsedRule>().unwrap_err();
/// assert_eq!(error.kind(), &RuleErrorKind::Zero { what: "the burst", least: "1" });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleErrorKind {
    /// The text is empty.
    Empty,
    /// The text is longer than any rule.
    TooLong,
    /// Something else was expected here.
    Expected {
        /// What was expected.
        expected: &'static str,
    },
    /// The text ends too early.
    Unfinished {
        /// What should follow.
        expected: &'static str,
    },
    /// A part of a word is missing.
    Missing {
        /// The missing part.
        what: &'static str,
    },
    /// The meaning is clear, but it has to be written differently.
    Rewrite {
        /// What is wrong with the spelling.
        why: &'static str,
        /// The right spelling.
        write: String,
    },
    /// More than one rule in one text.
    SeveralRules,
    /// An unknown unit of time.
    UnknownUnit {
        /// The unit that was probably meant.
        hint: Option<&'static str>,
    },
    /// An unknown word.
    UnknownWord {
        /// The words that are possible here.
        expected: String,
        /// The word that was probably meant.
        hint: Option<&'static str>,
    },
    /// An option that is given twice.
    Repeated,
    /// A word that is valid in other rules, or contradicts an earlier one.
    Conflict {
        /// Why the word is not allowed here.
        why: &'static str,
    },
    /// A number that must not be zero.
    Zero {
        /// The meaning of the number.
        what: &'static str,
        /// The smallest one allowed, with its unit.
        least: &'static str,
    },
    /// A number that is too large.
    TooLarge {
        /// The meaning of the number.
        what: &'static str,
        /// The largest one allowed.
        max: u64,
        /// The unit of the maximum; none for a count.
        unit: &'static str,
    },
    /// A rate beyond the resolution of time.
    TooFast,
    /// A time zone that is not in the database.
    UnknownZone,
}

/// The longest rule text, in bytes; a longer one is rejected without parsing.
pub(super) const BYTES_MAX: usize = 256;
/// The characters of a long text that are quoted before and after the wrong ones.
const SHOWN_BEFORE_MAX: usize = 40;
const SHOWN_AFTER_MAX: usize = 40;
/// The characters of a wrong word that are repeated in the message.
const CULPRIT_CHARS_MAX: usize = 24;

impl RuleError {
    pub(super) fn new(text: &str, span: Range<usize>, kind: RuleErrorKind) -> Self {
        let before: String = text[..span.start].chars().rev().take(SHOWN_BEFORE_MAX).collect();
        let before: String = before.chars().rev().map(printable).collect();
        let inside: String =
            text[span.clone()].chars().take(SHOWN_AFTER_MAX).map(printable).collect();
        let after: String = text[span.end..].chars().take(SHOWN_AFTER_MAX).map(printable).collect();
        let start = before.chars().count();
        let mark = start..start + inside.chars().count().max(1);
        let culprit = inside.chars().take(CULPRIT_CHARS_MAX).collect();
        Self { excerpt: format!("{before}{inside}{after}").into(), mark, span, culprit, kind }
    }

    /// Returns the same error at the last word of `text`, the spelling of the rule as given.
    pub(crate) fn in_text(self, text: &str) -> Self {
        let end = text.trim_ascii_end().len();
        let start = text[..end].rfind(|c: char| c.is_ascii_whitespace()).map_or(0, |at| at + 1);
        Self::new(text, start..end, self.kind)
    }

    /// Returns the kind of error.
    pub fn kind(&self) -> &RuleErrorKind {
        &self.kind
    }

    /// Returns the range of the wrong bytes in the text.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Returns the first line of the error, without the quoted text.
    pub fn message(&self) -> String {
        let culprit = &self.culprit;
        match &self.kind {
            RuleErrorKind::Empty => "a rule is needed, such as `100/s burst 20`".to_string(),
            RuleErrorKind::TooLong => {
                format!("the text is longer than a rule can be ({BYTES_MAX} bytes)")
            }
            RuleErrorKind::Expected { expected } => {
                format!("`{culprit}` is not {expected}")
            }
            RuleErrorKind::Unfinished { expected } => {
                format!("the rule ends here; {expected} should follow")
            }
            RuleErrorKind::UnknownUnit { hint: Some(hint) } => {
                format!("unknown unit `{culprit}`: did you mean `{hint}`?")
            }
            RuleErrorKind::UnknownUnit { hint: None } => {
                format!("unknown unit `{culprit}`: expected us, ms, s, min, h, day or week")
            }
            RuleErrorKind::Missing { what } => format!("{what} is missing here"),
            RuleErrorKind::Rewrite { why, write } => format!("{why}: write `{write}`"),
            RuleErrorKind::SeveralRules => {
                "one rule per text: create a limit for each, and decide \
                                            them together with `check_all`"
                    .to_string()
            }
            RuleErrorKind::UnknownWord { hint: Some(hint), .. } => {
                format!("unknown word `{culprit}`: did you mean `{hint}`?")
            }
            RuleErrorKind::UnknownWord { expected, hint: None } => {
                format!("unknown word `{culprit}`: expected {expected}")
            }
            RuleErrorKind::Repeated => format!("`{culprit}` is given twice"),
            RuleErrorKind::Conflict { why } => format!("`{culprit}` is not allowed here: {why}"),
            RuleErrorKind::Zero { what, least } => format!("{what} must be at least {least}"),
            RuleErrorKind::TooLarge { what, max, unit } => {
                format!("{what} must be at most {max}{unit}")
            }
            RuleErrorKind::TooFast => "a rate is at most 10000000000 per second".to_string(),
            RuleErrorKind::UnknownZone => {
                format!("unknown time zone `{culprit}`: expected a name such as `Asia/Shanghai`")
            }
        }
    }
}

/// Replaces control characters, direction marks and the like, which must not reach a terminal or a log.
fn printable(c: char) -> char {
    let is_format = matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    );
    if c.is_control() || is_format { '\u{fffd}' } else { c }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())?;
        if self.excerpt.is_empty() {
            return Ok(());
        }
        write!(f, "\n  {}\n  {:width$}", self.excerpt, "", width = self.mark.start)?;
        self.mark.clone().try_for_each(|_| f.write_str("^"))
    }
}

/// Prints the same text as `Display`, starting on a new line so that the mark is in place: for `unwrap` and `fn main() ->
/// Result<(), RuleError>`, which print this form.
impl fmt::Debug for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}")
    }
}

impl core::error::Error for RuleError {}
