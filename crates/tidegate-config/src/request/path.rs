//! Paths in a canonical form, so that all spellings of a page are counted as one.
//!
//! Why      Some servers serve the same page for `/login`, `//login`, `/%6cogin`, `/a%2f..%2flogin` and `/login;x`. The limiter
//!          does not know the server behind the proxy. So a limit on that page must count each spelling that any server
//!          accepts, and no spelling may have a key of its own.
//! Always   The canonical form applies every normalization that some server applies: it decodes escapes (repeatedly), decodes
//!          overlong UTF-8 of letters and separators, removes tabs and line ends, reads `\` as `/`, removes empty segments and
//!          `.`, parameters after `;`, dots and blanks at the end of a segment, a slash at the end, and all that follows an
//!          escaped `?` or `#`, and lowers capitals. Each step only merges paths, so two paths that a server treats as one
//!          page have one canonical form, also if the server applies only some of the steps.
//! Always   `..` is the exception: the segment that it removes depends on the other steps. It is resolved if all servers agree.
//!          Otherwise the path is ambiguous: every condition on paths counts it, and it has no value as a key.
//! Bound    Linear in the path. A path is normalized once per request, however many limits compare it.

use super::ambiguity::Readings;
use super::pattern;
use super::url::{EscapedSlash, Slash, decode_path, decode_path_fully, lower};
use std::borrow::Cow;

/// The path of a request.
///
/// ```
/// use tidegate_config::matching::{EscapedSlash, Path};
///
/// let path = Path::new("/x%2f..%2fLogin", EscapedSlash::Decode);
/// assert_eq!(path.canonical(), Some(&b"/login"[..]));
/// assert_eq!(Path::from("/x%2f..%2flogin").canonical(), None, "the page depends on the server");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    escaped_slash: EscapedSlash,
    /// The path with its escapes decoded once.
    literal: Cow<'a, [u8]>,
    /// The same in lower case.
    lower: Cow<'a, [u8]>,
    canonical: Cow<'a, [u8]>,
    /// The canonical form with a slash at its end, if the received path has one.
    as_directory: Option<Vec<u8>>,
    is_ambiguous: bool,
    came_canonical: bool,
    /// Whether it contains a raw `#`, at which some servers end the URI.
    has_fragment: bool,
}

/// A pattern for paths, in canonical form for both readings of `%2F`.
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
    /// Reads a path as received, without its query.
    pub fn new(raw: &'a str, escaped_slash: EscapedSlash) -> Self {
        if is_plain(raw.as_bytes()) {
            let path = Cow::Borrowed(raw.as_bytes());
            return Self {
                escaped_slash,
                literal: path.clone(),
                lower: path.clone(),
                canonical: path,
                as_directory: None,
                is_ambiguous: false,
                came_canonical: true,
                has_fragment: false,
            };
        }
        Self::read(raw.as_bytes(), escaped_slash)
    }

    /// Returns the canonical form; `None` if the path is ambiguous.
    pub fn canonical(&self) -> Option<&[u8]> {
        (!self.is_ambiguous).then_some(&*self.canonical)
    }

    /// Returns whether the received path was canonical.
    pub fn came_canonical(&self) -> bool {
        self.came_canonical
    }

    /// Returns whether some servers end the URI before its query.
    pub(super) fn has_fragment(&self) -> bool {
        self.has_fragment
    }

    fn into_owned(self) -> Path<'static> {
        Path {
            escaped_slash: self.escaped_slash,
            literal: Cow::Owned(self.literal.into_owned()),
            lower: Cow::Owned(self.lower.into_owned()),
            canonical: Cow::Owned(self.canonical.into_owned()),
            as_directory: self.as_directory,
            is_ambiguous: self.is_ambiguous,
            came_canonical: self.came_canonical,
            has_fragment: self.has_fragment,
        }
    }

    fn read(raw: &'a [u8], escaped_slash: EscapedSlash) -> Self {
        let slash = escaped_slash.slash();
        let literal = decode_path(raw, slash);
        let decoded = lower(&decode_path_fully(raw, slash));
        let end = memchr::memchr2(b'?', b'#', &decoded).unwrap_or(decoded.len());
        let Segments { names, ends_in_slash, climbs } = Segments::of(&decoded[..end]);
        let climbs = climbs || Segments::of(&decoded).climbs;
        let canonical = joined(&if climbs { resolved(&names) } else { names });
        let readings = Readings { raw, literal: &literal, decoded: &decoded, escaped_slash };
        let is_ambiguous = readings.differ() || climbs && readings.climb_differently();
        Self {
            escaped_slash,
            lower: Cow::Owned(lower(&literal)),
            came_canonical: canonical == raw,
            has_fragment: raw.contains(&b'#'),
            as_directory: ends_in_slash.then(|| [&canonical, &b"/"[..]].concat()),
            canonical: Cow::Owned(canonical),
            is_ambiguous,
            literal,
        }
    }
}

impl PathPattern {
    pub(super) fn new(pattern: &str) -> Self {
        let read = |escaped_slash| {
            let mut path = Path::read(pattern.as_bytes(), escaped_slash).into_owned();
            // A leading `*` includes the leading slash of the path.
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

    /// Returns whether some server may read the path as one that the pattern matches.
    pub(super) fn may_match(&self, path: &Path<'_>) -> bool {
        let pattern = self.read_as(path);
        path.is_ambiguous
            || pattern::matches(&pattern.lower, &path.lower)
            || pattern.matches_canonical(path)
    }

    /// Returns whether every server reads the path as one that the pattern matches.
    pub(super) fn surely_matches(&self, path: &Path<'_>) -> bool {
        let pattern = self.read_as(path);
        !path.is_ambiguous
            && pattern::matches(&pattern.literal, &path.literal)
            && pattern.matches_canonical(path)
    }

    /// Returns the path that the pattern matches in canonical form, if it has no `*`.
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

/// Returns whether the path is canonical and every server reads it alike, so that no step is needed.
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

/// The segments of a path, without what some server removes from them.
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
            // Servers read `...` as a name or as nothing, never as `..`.
            let is_ellipsis = name.len() > 2 && name.iter().all(|byte| *byte == b'.');
            let has_two_dots = name.iter().filter(|byte| **byte == b'.').nth(1).is_some();
            let is_up = is_dots && has_two_dots && !is_ellipsis;
            segments.ends_in_slash = is_dots;
            segments.climbs |= is_up;
            if is_up {
                segments.names.push(b"..");
            } else if !is_dots {
                segments.names.push(without_end(name));
            }
        }
        segments
    }
}

/// Returns whether some server cuts this byte off the end of a name. Java treats control characters as blanks.
fn is_dot_or_blank(byte: u8) -> bool {
    matches!(byte, b'.' | 0..=b' ')
}

/// Removes dots and blanks at the end.
fn without_end(name: &[u8]) -> &[u8] {
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
