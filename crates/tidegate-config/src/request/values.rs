//! The values of a header, a cookie or a query parameter.
//!
//! Why      Of a repeated name, some servers take the first value, some the last, some both. Some ignore case, some read `;`
//!          as `&`, some decode cookies, some cut a cookie's value at a comma or a blank, which RFC 6265 does not permit there.
//! Always   A name has a value as a key only if every server finds this value and no other. Conditions compare every value
//!          that some server finds.
//!          A repeated or ambiguous value is not the same as a missing one.

use super::http_request::{NoValue, Request};
use super::path::Path;
use super::url::decode_form;
use std::borrow::Cow;

/// The values of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Values<'a> {
    /// Every value that some server may find.
    pub(super) all: Vec<Cow<'a, [u8]>>,
    /// Whether some server may find no value.
    pub(super) may_be_absent: bool,
}

impl<'a> Values<'a> {
    /// Returns every value of a header.
    pub(super) fn of_header(request: &Request<'a>, name: &str) -> Self {
        let values = headers(request, name).map(|value| Cow::Borrowed(value.trim_ascii()));
        let all: Vec<_> = values.collect();
        Self { may_be_absent: all.is_empty(), all }
    }

    /// Returns every value of a query parameter, decoded.
    pub(super) fn of_parameter(query: &'a str, name: &str) -> Self {
        let mut search = ValueSearch::new(Source::Query, name);
        query.as_bytes().split(|byte| *byte == b'&').for_each(|pair| search.look_at(pair));
        // Some servers end the query at a raw `#`, others read on.
        search.has_exact &= !query.contains('#');
        search.values()
    }

    /// Returns every value of a query parameter of the request, decoded.
    pub(super) fn of_query(request: &Request<'a>, name: &str) -> Self {
        let values = Self::of_parameter(request.query.unwrap_or_default(), name);
        // Some servers end the URI at a raw `#` in its path and find no query, others read on.
        let may_end_before = request.path.as_ref().is_some_and(Path::has_fragment);
        Self { may_be_absent: values.may_be_absent || may_end_before, ..values }
    }

    /// Returns every value of a cookie, decoded and without quotes.
    pub(super) fn of_cookie(request: &Request<'a>, name: &str) -> Self {
        let mut search = ValueSearch::new(Source::Cookies, name);
        let pairs = headers(request, "cookie").flat_map(|value| value.split(|byte| *byte == b';'));
        pairs.for_each(|pair| search.look_at(pair));
        search.values()
    }

    /// Returns the value that every server finds. An empty value may be absent for some of them.
    pub(super) fn sole(self) -> Result<Cow<'a, [u8]>, NoValue> {
        if self.all.len() > 1 {
            return Err(NoValue::Repeated);
        }
        let value = self.all.into_iter().next().ok_or(NoValue::Absent)?;
        if self.may_be_absent && !value.is_empty() {
            return Err(NoValue::Ambiguous);
        }
        Ok(value)
    }
}

/// Returns the value of a header that is not repeated, without blanks around it.
pub(super) fn sole_header<'a>(request: &Request<'a>, name: &str) -> Result<Cow<'a, [u8]>, NoValue> {
    let mut values = headers(request, name);
    match (values.next(), values.next()) {
        (None, _) => Err(NoValue::Absent),
        (Some(value), None) => Ok(Cow::Borrowed(value.trim_ascii())),
        (Some(_), Some(_)) => Err(NoValue::Repeated),
    }
}

/// Returns every value of a header.
pub(super) fn headers<'a>(request: &Request<'a>, name: &str) -> impl Iterator<Item = &'a [u8]> {
    request.headers.iter().filter(move |(n, _)| *n == name).map(|(_, value)| *value)
}

/// Where a name is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Query,
    Cookies,
}

/// A search for the values of a name.
struct ValueSearch<'a, 'n> {
    source: Source,
    name: &'n [u8],
    folded: Vec<u8>,
    all: Vec<Cow<'a, [u8]>>,
    has_exact: bool,
}

impl<'a, 'n> ValueSearch<'a, 'n> {
    fn new(source: Source, name: &'n str) -> Self {
        let name = name.as_bytes();
        Self {
            source,
            name,
            folded: folded(name, name).collect(),
            all: Vec::new(),
            has_exact: false,
        }
    }

    /// Reads a pair, in which servers with further separators find several.
    fn look_at(&mut self, pair: &'a [u8]) {
        let separators: &[u8] = match self.source {
            Source::Query => b";#",
            // A comma separates cookies only if the same name follows. Otherwise it is in a value, which some servers cut there.
            Source::Cookies if self.comes_after_comma(pair) => b",",
            Source::Cookies => b"",
        };
        for (index, piece) in pair.split(|byte| separators.contains(byte)).enumerate() {
            let (name, value) = split(piece);
            let has_value = value.is_some();
            if !self.is_name(name) {
                continue;
            }
            let is_whole = piece.len() == pair.len();
            if index == 0 && !is_whole {
                self.put(split(pair).1.unwrap_or_default());
            }
            let value = value.unwrap_or_default();
            let is_clear = self.put(value);
            let cut = self.cut(value);
            if let Some(cut) = cut {
                self.put(cut);
            }
            self.has_exact |=
                is_whole && is_clear && cut.is_none() && self.is_exact(name, has_value);
        }
    }

    /// Returns whether the name and `=` follow a comma in the pair.
    fn comes_after_comma(&self, pair: &[u8]) -> bool {
        let mut after = pair.split(|byte| *byte == b',').skip(1).map(split);
        after.any(|(name, value)| value.is_some() && self.is_name(name))
    }

    /// Returns whether some server reads this as the name.
    fn is_name(&self, name: &[u8]) -> bool {
        let name = decode_form(name);
        let name = match self.source {
            Source::Query => &*name,
            Source::Cookies => without_odd_ends(&name),
        };
        folded(name, self.name).eq(self.folded.iter().copied())
    }

    /// Returns whether every server reads this as the name.
    fn is_exact(&self, name: &[u8], has_value: bool) -> bool {
        match self.source {
            Source::Query => *decode_form(name) == *self.name,
            // nginx does not skip a tab before a name.
            Source::Cookies => has_value && without_blanks(name) == self.name,
        }
    }

    /// Adds a value. Returns whether every server reads it alike.
    fn put(&mut self, value: &'a [u8]) -> bool {
        let bare = match self.source {
            Source::Query => value,
            Source::Cookies => unquoted(value.trim_ascii()),
        };
        self.all.push(decode_form(bare));
        let is_odd = |byte: &u8| matches!(byte, b'"' | b'\\');
        let has_odd_ends = without_odd_ends(value).len() < value.trim_ascii().len();
        self.source == Source::Query || !has_odd_ends && !bare.iter().any(is_odd)
    }

    /// Returns the part of a cookie's value that some servers read: up to a comma or a blank, if there is one outside of quotes.
    fn cut(&self, value: &'a [u8]) -> Option<&'a [u8]> {
        let value = value.trim_ascii();
        if self.source == Source::Query || unquoted(value).len() < value.len() {
            return None;
        }
        let end = value.iter().position(|byte| matches!(byte, b',' | b' ' | b'\t'))?;
        Some(&value[..end])
    }

    fn values(self) -> Values<'a> {
        Values { may_be_absent: !self.has_exact, all: self.all }
    }
}

fn split(piece: &[u8]) -> (&[u8], Option<&[u8]>) {
    match piece.iter().position(|byte| *byte == b'=') {
        Some(index) => (&piece[..index], Some(&piece[index + 1..])),
        None => (piece, None),
    }
}

/// Removes blanks and bytes beyond ASCII at both ends: Python and JavaScript strip a no-break space from the names and values of
/// cookies, in Latin-1 or UTF-8. No cookie may contain one (RFC 6265).
fn without_odd_ends(text: &[u8]) -> &[u8] {
    let is_odd = |byte: &u8| !byte.is_ascii_graphic();
    let start = text.iter().position(|byte| !is_odd(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_odd(byte)).map_or(start, |end| end + 1);
    &text[start..end]
}

/// Removes blanks at the start.
fn without_blanks(name: &[u8]) -> &[u8] {
    let start = name.iter().position(|byte| *byte != b' ').unwrap_or(name.len());
    &name[start..]
}

fn unquoted(value: &[u8]) -> &[u8] {
    let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    bare.unwrap_or(value)
}

/// Folds a name so that names are equal if any server treats them as equal: PHP cuts a name at a NUL, ignores `[]` at its end
/// and blanks at its start, and reads `.` as `_`; ASP.NET ignores case.
fn folded<'a>(name: &'a [u8], meant: &[u8]) -> impl Iterator<Item = u8> + use<'a> {
    let has_brackets = meant.contains(&b'[');
    let is_end = |byte: &u8| *byte == 0 || *byte == b'[' && !has_brackets;
    let end = name.iter().position(is_end).unwrap_or(name.len());
    let fold = |byte: &u8| match byte {
        b'.' | b' ' => b'_',
        byte => byte.to_ascii_lowercase(),
    };
    name[..end].trim_ascii().iter().map(fold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(values: &Values<'_>) -> Vec<String> {
        values.all.iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect()
    }

    fn sole(values: Values<'_>) -> Option<String> {
        values.sole().ok().map(|value| String::from_utf8_lossy(&value).into_owned())
    }

    fn cookies<'a>(lines: &[&'a str]) -> Request<'a> {
        let headers = lines.iter().map(|line| ("cookie", line.as_bytes())).collect();
        Request { headers, ..Request::default() }
    }

    #[test]
    fn a_parameter_is_decoded() {
        for (query, value) in [
            ("user=ann", "ann"),
            ("a=1&user=ann&b=2", "ann"),
            ("us%65r=%61nn", "ann"),
            ("%75%73%65%72=a+n%2Bn", "a n+n"),
            ("user", ""),
            ("user=", ""),
            ("&&=x&user=a=b&user2=c&x[user]=d", "a=b"),
            ("user=%zz%", "%zz%"),
        ] {
            let values = Values::of_parameter(query, "user");
            assert_eq!(sole(values).as_deref(), Some(value), "{query}");
        }
    }

    #[test]
    fn a_parameter_that_servers_may_read_differently_has_no_value() {
        for (query, all) in [
            ("user=ann&user=bob", &["ann", "bob"][..]),
            ("user=ann&user=ann", &["ann", "ann"]),
            ("user=ann&user", &["ann", ""]),
            ("user=ann&%75ser=bob", &["ann", "bob"]),
            ("user=ann&User=bob", &["ann", "bob"]),
            ("user=ann&user[]=bob", &["ann", "bob"]),
            ("user=ann&user%5B0%5D=bob", &["ann", "bob"]),
            ("user=ann&+user=bob", &["ann", "bob"]),
            ("user=ann&user%00x=bob", &["ann", "bob"]),
            ("user=ann;user=bob", &["ann;user=bob", "ann", "bob"]),
            ("user=ann;x", &["ann;x", "ann"]),
            ("x=1;user=bob", &["bob"]),
            ("x=1&amp;user=bob", &["bob"]),
            ("User=bob", &["bob"]),
            ("user[]=bob", &["bob"]),
            ("user;x=bob", &["bob", ""]),
            ("x=1#&user=bob", &["bob"]),
            ("user=ann#x", &["ann#x", "ann"]),
            ("user=ann&x#y", &["ann"]),
        ] {
            let values = Values::of_parameter(query, "user");
            assert_eq!(texts(&values), all, "{query}");
            assert_eq!(sole(values), None, "{query}");
        }
        assert_eq!(Values::of_parameter("users=1&xuser=2", "user").all.len(), 0);
        let nested = Values::of_parameter("filter[a]=1&filter[b]=2", "filter[b]");
        assert_eq!(sole(nested).unwrap(), "2", "the limit names the brackets");
        let dotted = Values::of_parameter("a.b=1&a_b=2", "a.b");
        assert_eq!(sole(dotted), None, "PHP reads them as one name");
    }

    #[test]
    fn a_cookie_is_decoded_and_without_quotes() {
        for (lines, value) in [
            (&["sid=7"][..], "7"),
            (&["a=1; sid=7;b=2"], "7"),
            (&["a=1", "sid=7", "b=2"], "7"),
            (&["sid=\"s 1\""], "s 1"),
            (&["sid=%61bc"], "abc"),
            (&["sid=a+b=="], "a b=="),
            (&["sid=\"1,2\""], "1,2"),
            (&["sid= 7 "], "7"),
            (&["a=1,2; sid=7; b=3 4"], "7"),
            (&["prefs={a:1,sid:2}; sid=abc"], "abc"),
            (&["xsid=1; sid =2x; sid2=3", "sid=7"], ""),
            (&["xsid=1; sid2=3; sid=7"], "7"),
        ] {
            let values = Values::of_cookie(&cookies(lines), "sid");
            assert_eq!(sole(values).unwrap_or_default(), value, "{lines:?}");
        }
    }

    #[test]
    fn a_cookie_that_servers_may_read_differently_has_no_value() {
        for (lines, all) in [
            (&["sid=1; sid=2"][..], &["1", "2"][..]),
            (&["sid=1", "sid=2"], &["1", "2"]),
            (&["sid=1; sid=1"], &["1", "1"]),
            (&["sid=1; SID=2"], &["1", "2"]),
            (&["sid=1; %73id=2"], &["1", "2"]),
            (&["sid=1; sid"], &["1", ""]),
            (&["sid=1, sid=2"], &["1, sid=2", "1", "2"]),
            (&["sid=1,2"], &["1,2", "1"]),
            (&["sid=1 2"], &["1 2", "1"]),
            (&["sid=1\t2"], &["1\t2", "1"]),
            (&["sid=,"], &[",", ""]),
            (&["sid=a,b=c,sid"], &["a,b=c,sid", "a"]),
            (&["a=1, sid=2"], &["2"]),
            (&["a=1, sid=2; sid=3"], &["2", "3"]),
            (&["sid=1,x, SID=2"], &["1,x, SID=2", "1", "2"]),
            (&["a=\"; sid=1; b=\"; sid=2"], &["1", "2"]),
            (&["sid=\"\\141bc\""], &["\\141bc"]),
            (&["sid=a\"b"], &["a\"b"]),
            (&["sid =1"], &["1"]),
            (&["SID=1"], &["1"]),
            (&["sid"], &[""]),
            (&["sid=a\u{a0}"], &["a\u{a0}"]),
            (&["sid=\u{3000}a"], &["\u{3000}a"]),
            (&["sid=a; \u{a0}sid=b"], &["a", "b"]),
            (&["sid\u{a0}=b"], &["b"]),
            (&["x=1;\tsid=b"], &["b"]),
        ] {
            let values = Values::of_cookie(&cookies(lines), "sid");
            assert_eq!(texts(&values), all, "{lines:?}");
            assert_eq!(sole(values).filter(|value| !value.is_empty()), None, "{lines:?}");
        }
    }

    #[test]
    fn a_query_after_a_fragment_may_be_absent() {
        let request =
            Request { path: Some("/login#".into()), query: Some("user=ann"), ..Request::default() };
        assert_eq!(Values::of_query(&request, "user").sole(), Err(NoValue::Ambiguous));
        let request = Request { path: Some("/login%23".into()), ..request };
        assert!(Values::of_query(&request, "user").sole().is_ok());
    }

    proptest! {
        #[test]
        fn a_repeated_name_has_no_value(
            before in "([a-z;%+=&]{0,6}&)?",
            name in "(u|%75|U|%55)(s|%73)er(\\[\\])?",
            after in "[a-z=]{0,6}",
        ) {
            let once = format!("{before}user=ann");
            for query in [format!("{once}&{name}={after}"), format!("{name}={after}&{once}")] {
                let sole = Values::of_parameter(&query, "user").sole();
                prop_assert_eq!(sole, Err(NoValue::Repeated));
            }
        }

        #[test]
        fn no_bytes_panic(query in "\\PC{0,32}|[user=&;%\\[\\]0]{0,32}") {
            let all = Values::of_parameter(&query, "user").all.len();
            prop_assert!(all <= 2 * query.len() + 2);
            let headers = vec![("cookie", query.as_bytes())];
            let request = Request { headers, ..Request::default() };
            prop_assert!(Values::of_cookie(&request, "user").all.len() <= 2 * query.len() + 2);
        }
    }
}
