//! What is wrong with a rule, where, and what to write instead.
//!
//! Always   The position is that of the offending characters in the text as given. What is shown of
//!          the text is bounded and printable, whatever was thrown at the parser.

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

/// A rule that cannot be read.
///
/// It prints as what is wrong and what would be right, with the text and a mark under the place:
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
    /// What is shown of the text, and the characters of it to point at.
    excerpt: Box<str>,
    mark: Range<usize>,
    /// Where in the whole text, in bytes.
    span: Range<usize>,
    culprit: Box<str>,
    kind: RuleErrorKind,
}

/// The ways in which a rule can be wrong.
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
    /// There is no text.
    Empty,
    /// The text is longer than any rule.
    TooLong,
    /// Something else was expected here.
    Expected {
        /// What would be right.
        expected: &'static str,
    },
    /// The text ends too early.
    Unfinished {
        /// What should follow.
        expected: &'static str,
    },
    /// A part of a word is not there.
    Missing {
        /// Which part.
        what: &'static str,
    },
    /// What was meant is clear, but it is written otherwise.
    Rewrite {
        /// What is wrong with it.
        why: &'static str,
        /// How it is written.
        write: String,
    },
    /// More than one rule in one text.
    SeveralRules,
    /// A unit of time that we do not know.
    UnknownUnit {
        /// What was probably meant.
        hint: Option<&'static str>,
    },
    /// A word that means nothing here.
    UnknownWord {
        /// The words that would mean something.
        expected: String,
        /// What was probably meant.
        hint: Option<&'static str>,
    },
    /// Said twice, or together with something that rules it out.
    Conflict {
        /// Why it cannot stand here.
        why: &'static str,
    },
    /// A number that must not be zero.
    Zero {
        /// Which number.
        what: &'static str,
        /// The smallest one allowed, with its unit.
        least: &'static str,
    },
    /// A number beyond what can be counted.
    TooLarge {
        /// Which number.
        what: &'static str,
        /// The largest one allowed.
        max: u64,
        /// The unit of the maximum; none for a count.
        unit: &'static str,
    },
    /// More per second than can be told apart.
    TooFast,
    /// A time zone that the database does not have.
    UnknownZone,
}

/// The longest rule text, in bytes; a longer one is rejected unread.
pub(super) const BYTES_MAX: usize = 256;
/// How much of a long text is shown on each side of the place.
const SHOWN_BEFORE_MAX: usize = 40;
const SHOWN_AFTER_MAX: usize = 40;
/// How much of an offending word is repeated in the message.
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

    /// The same error about the last word of `text`, which is how the rule was written.
    pub(crate) fn in_text(self, text: &str) -> Self {
        let end = text.trim_ascii_end().len();
        let start = text[..end].rfind(|c: char| c.is_ascii_whitespace()).map_or(0, |at| at + 1);
        Self::new(text, start..end, self.kind)
    }

    /// What is wrong.
    ///
    /// ```
    /// # use tidegate_core::{ParsedRule, RuleErrorKind};
    /// assert_eq!("".parse::<ParsedRule>().unwrap_err().kind(), &RuleErrorKind::Empty);
    /// ```
    pub fn kind(&self) -> &RuleErrorKind {
        &self.kind
    }

    /// Which bytes of the text are to blame.
    ///
    /// ```
    /// # use tidegate_core::ParsedRule;
    /// assert_eq!("10/fortnight".parse::<ParsedRule>().unwrap_err().span(), 3..12);
    /// ```
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The first line of the error, without the picture.
    ///
    /// ```
    /// # use tidegate_core::ParsedRule;
    /// let error = "100/s burst 0".parse::<ParsedRule>().unwrap_err();
    /// assert_eq!(error.message(), "the burst must be at least 1");
    /// ```
    pub fn message(&self) -> String {
        let culprit = &self.culprit;
        match &self.kind {
            RuleErrorKind::Empty => "a rule is needed, such as `100/s burst 20`".to_string(),
            RuleErrorKind::TooLong => {
                format!("longer than {} bytes: this is no rule", BYTES_MAX)
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
            RuleErrorKind::SeveralRules => "one rule per text: make a limit of each, and decide \
                                            them together with `check_all`"
                .to_string(),
            RuleErrorKind::UnknownWord { hint: Some(hint), .. } => {
                format!("unknown word `{culprit}`: did you mean `{hint}`?")
            }
            RuleErrorKind::UnknownWord { expected, hint: None } => {
                format!("unknown word `{culprit}`: expected {expected}")
            }
            RuleErrorKind::Conflict { why } => format!("`{culprit}` cannot stand here: {why}"),
            RuleErrorKind::Zero { what, least } => format!("{what} must be at least {least}"),
            RuleErrorKind::TooLarge { what, max, unit } => {
                format!("{what} must be at most {max}{unit}")
            }
            RuleErrorKind::TooFast => {
                "faster than 10000000000 a second: that is more than can be counted".to_string()
            }
            RuleErrorKind::UnknownZone => {
                format!("unknown time zone `{culprit}`: expected a name such as `Asia/Shanghai`")
            }
        }
    }
}

/// Control characters, direction marks and the like must not reach a terminal or a log.
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

/// For `fn main() -> Result<(), RuleError>` and `unwrap`, which print this: the same text as for
/// people, on lines of its own so that the mark stands under its place.
///
/// ```
/// let error = "10/d".parse::<tidegate_core::ParsedRule>().unwrap_err();
/// assert_eq!(format!("{error:?}"), format!("\n{error}"));
/// ```
impl fmt::Debug for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}")
    }
}

impl core::error::Error for RuleError {}
