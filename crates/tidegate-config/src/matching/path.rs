//! A path, and which page servers take it for.
//!
//! Why      `/login`, `//login`, `/%6cogin`, `/a%2f..%2flogin` and `/login;x` are one page to some servers and different
//!          ones to others. Which server stands behind the proxy is not known here, so a limit on that page must count each
//!          spelling that any of them takes for it, and a key must not be new with each spelling.
//! Always   The canonical form undoes, one after the other, all that some server undoes: escapes (however often), letters and
//!          separators in UTF-8 that is longer than it need be, tabs and line ends, `\` for `/`, empty segments, `.`,
//!          parameters after `;`, dots and blanks at the end of a segment, a slash at the end, what
//!          follows an escaped `?` or `#`, capitals. Each only makes paths the same that were different, so a server that
//!          undoes some of it is never more lenient than that: two paths that it takes for one have one canonical form.
//! Always   `..` is the exception: which segment it takes away depends on what else is undone. It is resolved where all
//!          servers agree. Else the path is ambiguous: every condition on paths counts it, and as a key it is none.
//! Bound    Linear in the path, and read once for a request, however many limits look at it.

use super::ambiguity::Readings;
use super::pattern;
use super::url::{Slash, decode_path, decode_path_fully};
use std::borrow::Cow;

/// What the server behind a proxy takes `%2F` in a path for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EscapedSlash {
    /// Nobody knows. A path whose meaning depends on it is ambiguous.
    #[default]
    Either,
    /// A separator: `/a%2F..%2Fb` is `/b`, as for nginx and Caddy.
    Decode,
    /// A part of a name: `/a%2Fb/../c` is `/c`.
    Keep,
}

/// The path of a request.
///
/// ```
/// use tidegate_config::matching::{EscapedSlash, Path};
///
/// let path = Path::new("/x%2f..%2fLogin", EscapedSlash::Decode);
/// assert_eq!(path.canonical(), Some(&b"/login"[..]));
/// assert_eq!(Path::from("/x%2f..%2flogin").canonical(), None, "it depends on the server");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    escaped_slash: EscapedSlash,
    /// With its escapes decoded once, and nothing else.
    literal: Cow<'a, [u8]>,
    /// The same in small letters.
    small: Cow<'a, [u8]>,
    canonical: Cow<'a, [u8]>,
    /// The same with a slash at its end, if it came with one.
    as_directory: Option<Vec<u8>>,
    is_ambiguous: bool,
    came_canonical: bool,
}

/// A pattern for paths, as it is compared with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathPattern {
    separating: Path<'static>,
    staying: Path<'static>,
}

impl<'a> From<&'a str> for Path<'a> {
    fn from(raw: &'a str) -> Self {
        Self::new(raw, EscapedSlash::default())
    }
}

impl<'a> Path<'a> {
    /// The path as it came, without query.
    pub fn new(raw: &'a str, escaped_slash: EscapedSlash) -> Self {
        if is_plain(raw.as_bytes()) {
            let path = Cow::Borrowed(raw.as_bytes());
            return Self {
                escaped_slash,
                literal: path.clone(),
                small: path.clone(),
                canonical: path,
                as_directory: None,
                is_ambiguous: false,
                came_canonical: true,
            };
        }
        Self::read(raw.as_bytes(), escaped_slash)
    }

    /// The one form of all its spellings; `None` if servers differ about which page it is.
    pub fn canonical(&self) -> Option<&[u8]> {
        (!self.is_ambiguous).then_some(&*self.canonical)
    }

    /// Whether that is how it came.
    pub fn came_canonical(&self) -> bool {
        self.came_canonical
    }

    fn into_owned(self) -> Path<'static> {
        Path {
            escaped_slash: self.escaped_slash,
            literal: Cow::Owned(self.literal.into_owned()),
            small: Cow::Owned(self.small.into_owned()),
            canonical: Cow::Owned(self.canonical.into_owned()),
            as_directory: self.as_directory,
            is_ambiguous: self.is_ambiguous,
            came_canonical: self.came_canonical,
        }
    }

    fn read(raw: &'a [u8], escaped_slash: EscapedSlash) -> Self {
        let slash = escaped_slash.slash();
        let literal = decode_path(raw, slash);
        let decoded = small(&decode_path_fully(raw, slash));
        let end = memchr::memchr2(b'?', b'#', &decoded).unwrap_or(decoded.len());
        let Segments { names, ends_in_slash, climbs } = Segments::of(&decoded[..end]);
        let climbs = climbs || Segments::of(&decoded).climbs;
        let canonical = joined(&if climbs { resolved(&names) } else { names });
        let readings = Readings { raw, literal: &literal, decoded: &decoded, escaped_slash };
        let is_ambiguous = readings.differ() || climbs && readings.climb_differently();
        Self {
            escaped_slash,
            small: Cow::Owned(small(&literal)),
            came_canonical: canonical == raw,
            as_directory: ends_in_slash.then(|| [&canonical, &b"/"[..]].concat()),
            canonical: Cow::Owned(canonical),
            is_ambiguous,
            literal,
        }
    }
}

impl EscapedSlash {
    fn slash(self) -> Slash {
        match self {
            Self::Either | Self::Decode => Slash::Separates,
            Self::Keep => Slash::Stays,
        }
    }
}

impl PathPattern {
    pub(super) fn new(pattern: &str) -> Self {
        let read = |escaped_slash| {
            let mut path = Path::read(pattern.as_bytes(), escaped_slash).into_owned();
            // `*.php` begins with whatever a path begins with.
            if pattern.starts_with('*') {
                path.canonical.to_mut().remove(0);
            }
            path
        };
        Self { separating: read(EscapedSlash::Either), staying: read(EscapedSlash::Keep) }
    }

    fn read_as(&self, path: &Path<'_>) -> &Path<'static> {
        match path.escaped_slash.slash() {
            Slash::Separates => &self.separating,
            Slash::Stays => &self.staying,
        }
    }

    /// Whether some server may take the path for what is meant.
    pub(super) fn may_match(&self, path: &Path<'_>) -> bool {
        let pattern = self.read_as(path);
        path.is_ambiguous
            || pattern::matches(&pattern.small, &path.small)
            || pattern.matches_canonical(path)
    }

    /// Whether every server does.
    pub(super) fn surely_matches(&self, path: &Path<'_>) -> bool {
        let pattern = self.read_as(path);
        !path.is_ambiguous
            && pattern::matches(&pattern.literal, &path.literal)
            && pattern.matches_canonical(path)
    }

    /// The only path that it means, in its canonical form.
    pub(super) fn only(&self, path: &Path<'_>) -> Option<Vec<u8>> {
        let canonical = self.read_as(path).canonical()?;
        (!canonical.contains(&b'*')).then(|| canonical.to_vec())
    }
}

impl Path<'_> {
    fn matches_canonical(&self, path: &Path<'_>) -> bool {
        let matches = |path: &[u8]| pattern::matches(&self.canonical, path);
        matches(&path.canonical) || path.as_directory.as_deref().is_some_and(matches)
    }
}

/// Whether all servers take it for the same, which has the form that it came in.
fn is_plain(raw: &[u8]) -> bool {
    let is_odd = |byte: &u8| {
        byte.is_ascii_uppercase() || !byte.is_ascii_graphic() || b"%\\;?#".contains(byte)
    };
    let is_odd_pair = |pair: &[u8]| matches!(pair, b"//" | b"/." | b"./");
    let ends_oddly = raw.ends_with(b".") || raw.ends_with(b"/") && raw.len() > 1;
    raw.starts_with(b"/")
        && !ends_oddly
        && !raw.iter().any(is_odd)
        && !raw.windows(2).any(is_odd_pair)
}

/// In small letters, as servers compare that do not tell capitals: letter by letter, whatever the language.
pub(super) fn small(path: &[u8]) -> Vec<u8> {
    let mut small = Vec::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        small.extend_from_slice(chunk.valid().chars().map(folded).collect::<String>().as_bytes());
        small.extend_from_slice(chunk.invalid());
    }
    small
}

/// The small form of a letter's capital: `ſ` is `s` and `ı` is `i`, as in servers that compare capitals. A letter whose
/// capital is more than one letter keeps its own small form.
fn folded(letter: char) -> char {
    let lower = |letter: char| letter.to_lowercase().next().unwrap_or(letter);
    let letter = lower(letter);
    let mut capital = letter.to_uppercase();
    match (capital.next(), capital.next()) {
        (Some(capital), None) => lower(capital),
        _ => letter,
    }
}

/// A path in its parts, with nothing in them that some server leaves out.
struct Segments<'a> {
    names: Vec<&'a [u8]>,
    ends_in_slash: bool,
    climbs: bool,
}

impl<'a> Segments<'a> {
    fn of(decoded: &'a [u8]) -> Self {
        let mut segments = Self { names: Vec::new(), ends_in_slash: true, climbs: false };
        for raw in decoded.split(|byte| matches!(byte, b'/' | b'\\')) {
            let name = raw.split(|byte| *byte == b';').next().unwrap_or_default();
            let is_dots = name.iter().copied().all(is_dot_or_blank);
            // No server takes `...` for more than a name or nothing.
            let is_ellipsis = name.len() > 2 && name.iter().all(|byte| *byte == b'.');
            let has_two_dots = name.iter().filter(|byte| **byte == b'.').nth(1).is_some();
            let is_up = is_dots && has_two_dots && !is_ellipsis;
            segments.ends_in_slash = is_dots;
            segments.climbs |= is_up;
            if is_up {
                segments.names.push(b"..");
            } else if !is_dots {
                segments.names.push(shorter(name));
            }
        }
        segments
    }
}

/// Whether some server cuts it off the end of a name; control characters are blanks to Java.
fn is_dot_or_blank(byte: u8) -> bool {
    matches!(byte, b'.' | 0..=b' ')
}

/// Without dots and blanks at the end.
fn shorter(name: &[u8]) -> &[u8] {
    let end = name.iter().rposition(|byte| !is_dot_or_blank(*byte));
    &name[..end.map_or(0, |end| end + 1)]
}

fn resolved<'a>(names: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let mut resolved = Vec::new();
    for name in names {
        if *name == b".." {
            resolved.pop();
        } else {
            resolved.push(*name);
        }
    }
    resolved
}

fn joined(names: &[&[u8]]) -> Vec<u8> {
    if names.is_empty() {
        return b"/".to_vec();
    }
    names.iter().flat_map(|name| b"/".iter().chain(*name)).copied().collect()
}

#[cfg(test)]
mod tests;
