//! Spellings, and what servers make of them.

use super::*;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

fn read(raw: &str) -> String {
    let path = Path::from(raw);
    path.canonical().map_or("?".to_owned(), |path| String::from_utf8_lossy(path).into_owned())
}

fn read_as(raw: &str, escaped_slash: EscapedSlash) -> String {
    let path = Path::new(raw, escaped_slash);
    path.canonical().map_or("?".to_owned(), |path| String::from_utf8_lossy(path).into_owned())
}

#[test]
fn spellings_of_a_path_are_one_path() {
    for raw in [
        "/login",
        "/%6cogin",
        "/%6Cogin",
        "//login",
        "/./login",
        "/a/../login",
        "/../login",
        "/%2flogin",
        "%2Flogin",
        "/%252flogin",
        "\\login",
        "/%5clogin",
        "/login/",
        "/login/.",
        "/login;x=1",
        "/;x/login",
        "/LOGIN",
        "/log%C4%B0n",
        "/login.",
        "/login%20",
        "/login..",
        "/login%3fx",
        "/login%23x",
        "/login%253fx",
        "/login%2f",
        "/login%0a",
        "/login%01",
        "/log%09in",
        "/login#x",
        "/log%c1%a9n",
        "/%c0%aflogin",
        "/%e0%80%aflogin",
        "/login/...",
        "/log%C4%B1n",
        "/%2e/login",
        "/x/y/../../login",
    ] {
        assert_eq!(read(raw), "/login", "{raw}");
    }
    for (raw, canonical) in [
        ("/", "/"),
        ("//", "/"),
        ("", "/"),
        ("/;x", "/"),
        ("/a%2fb", "/a/b"),
        ("/a/b/../", "/a"),
        ("/a/", "/a"),
        ("/a%", "/a%"),
        ("/a%4", "/a%4"),
        ("/.well-known/x", "/.well-known/x"),
        ("/compare/a...b", "/compare/a...b"),
        ("/\u{c9}t\u{e9}", "/\u{e9}t\u{e9}"),
    ] {
        assert_eq!(read(raw), canonical, "{raw}");
    }
}

#[test]
fn where_servers_resolve_differently_a_path_is_ambiguous() {
    for raw in [
        "/x%2f..%2flogin",
        "/x/..%2flogin",
        "/x%2fy/../login",
        "/x//../login",
        "/x/%2e%2e/login",
        "/x/%252e%252e/login",
        "/x\\..\\login",
        "/x\\y/../login",
        "/x/..;/login",
        "/x;/../login",
        "/x/.../../login",
        "/x/..%01/login",
        "/x/.%09./login",
        "/x/%2e%c0%ae/login",
        "/x/..%c0%aflogin",
        "/x#/../login",
        "/login/x/..",
        "/x./../login",
        "/x%3f/../login",
        "/login%00",
        "/login%00.png",
        "/%c0%ae%c0%ae/login",
        "/%u002flogin",
        "/%uff0flogin",
        "/log%u0069n",
        "/list;path=a%2fb",
    ] {
        assert_eq!(read(raw), "?", "{raw}");
    }
}

#[test]
fn a_known_reading_of_escaped_slashes_makes_fewer_paths_ambiguous() {
    for (raw, decoded, kept) in [
        ("/x%2f..%2flogin", "/login", "/x%2f..%2flogin"),
        ("/x%2Fy/../login", "/x/login", "/login"),
        ("/x/%2e%2e/login", "/login", "/login"),
        ("/x//../login", "/login", "?"),
        ("/a%2Fb", "/a/b", "/a%2fb"),
        ("/x\\y/../login", "?", "?"),
        ("/x/..;/login", "?", "?"),
        ("/x%252f..%252flogin", "?", "/x%2f..%2flogin"),
    ] {
        assert_eq!(read_as(raw, EscapedSlash::Decode), decoded, "{raw}");
        assert_eq!(read_as(raw, EscapedSlash::Keep), kept, "{raw}");
    }
}

#[test]
fn a_pattern_matches_whatever_some_server_takes_for_it() {
    let pattern = PathPattern::new("/files/*");
    let matches = |raw: &str| (pattern.may_match(&raw.into()), pattern.surely_matches(&raw.into()));
    assert_eq!(matches("/files/a"), (true, true));
    assert_eq!(matches("/files/%61"), (true, true));
    assert_eq!(matches("/files/"), (true, true));
    for doubtful in [
        "/FILES/a",
        "//files/a",
        "/files;x/a",
        "/files/../a",
        "/files/x%2f../a",
        "/x/..;/files/a",
        "/files%252fa",
    ] {
        assert_eq!(matches(doubtful), (true, false), "{doubtful}");
    }
    for other in ["/files", "/filesa", "/a/files/", "/"] {
        assert_eq!(matches(other), (false, false), "{other}");
    }
    for (pattern, path) in [
        ("*", "//"),
        ("*.php", "/a/b.PHP"),
        ("*/admin", "/admin"),
        ("*/admin", "/a/admin;x"),
        ("/login/", "/login"),
        ("/a%2Fb", "/a/b"),
        ("/a;v=1", "//a;v=1"),
        ("/caf%C3%A9", "/caf\u{c9}"),
        ("/v1/*/edit", "/v1/;x/edit"),
    ] {
        assert!(PathPattern::new(pattern).may_match(&path.into()), "{pattern} {path}");
    }
    let negated = PathPattern::new("*.png");
    for path in ["/pay%3f.png", "/pay;.png", "/pay%23.png", "/pay%00.png", "/.png/../pay"] {
        assert!(!negated.surely_matches(&path.into()), "{path}");
    }
}

#[test]
fn a_kept_slash_is_no_separator_in_patterns() {
    let pattern = PathPattern::new("/a%2Fb");
    let may_match = |raw| pattern.may_match(&Path::new(raw, EscapedSlash::Keep));
    assert!(may_match("/a%2fb") && may_match("/A%2Fb/"));
    assert!(!may_match("/a/b"));
}

/// Applies one normalization. A server applies some of them, in some order.
fn normalized(raw: &[u8], by: &str) -> Vec<u8> {
    // Each byte is a character, and back.
    let text = || raw.iter().map(|byte| char::from(*byte)).collect::<String>();
    let bytes = |text: String| text.chars().map(|c| u8::try_from(c).unwrap()).collect();
    let segments = |change: fn(&str) -> &str| {
        bytes(text().split('/').map(change).collect::<Vec<_>>().join("/"))
    };
    match by {
        "decode" => decode_path(raw, Slash::Separates).into_owned(),
        "decode, but not slashes" => decode_path(raw, Slash::Stays).into_owned(),
        "backslashes" => bytes(text().replace('\\', "/")),
        "merge" => {
            let mut merged = raw.to_vec();
            merged.dedup_by(|a, b| *a == b'/' && *b == b'/');
            merged
        }
        "dots" => segments(|segment| if segment == "." { "" } else { segment }),
        "parameters" => segments(|segment| segment.split(';').next().unwrap()),
        "ends" => segments(|segment| match segment {
            "." | ".." => segment,
            segment => segment.trim_end_matches(['.', ' ']),
        }),
        "end" => bytes(text().trim_end_matches(['.', ' ']).to_owned()),
        "resolve" => {
            let (text, mut resolved) = (text(), Vec::new());
            for segment in text.split('/').skip(1) {
                if segment == ".." {
                    resolved.pop();
                } else {
                    resolved.push(segment);
                }
            }
            bytes(format!("/{}", resolved.join("/")))
        }
        "slash" if raw.len() > 1 => raw.strip_suffix(b"/").unwrap_or(raw).to_vec(),
        "query" => raw.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap().to_vec(),
        "capitals" => raw.to_ascii_lowercase(),
        "line ends" => bytes(text().replace(['\t', '\n', '\r'], "")),
        "overlong" => bytes(
            text()
                .replace("\u{c0}\u{af}", "/")
                .replace("\u{c0}\u{ae}", ".")
                .replace("\u{c1}\u{a1}", "a"),
        ),
        _ => raw.to_vec(),
    }
}

#[test]
fn honest_paths_are_not_ambiguous() {
    for (raw, canonical) in [
        ("/search/a%0Ab", "/search/ab"),
        ("/search/a%09b", "/search/ab"),
        ("/search/a%1bb", "/search/a\u{1b}b"),
        ("/search/...", "/search"),
        ("/a/.../b", "/a/b"),
        ("/caf%u00e9", "/caf%u00e9"),
        ("/x%u65e5", "/x%u65e5"),
    ] {
        assert_eq!(read(raw), canonical, "{raw}");
    }
    // EUC-KR and GBK, also where their bytes look like UTF-8 that is too long.
    for raw in ["/%B0%A1%C0%BB", "/%C0%AF%C0%CC", "/%C1%A6", "/%D5%5C", "/%E0%80%81"] {
        assert_ne!(read(raw), "?", "{raw}");
    }
    assert_eq!(read_as("/list;path=a%2fb", EscapedSlash::Keep), "/list");
}

#[test]
fn a_letter_and_its_capital_are_one_in_every_alphabet() {
    let fold = |letter: char| lower(letter.to_string().as_bytes());
    let sole = |mut letters: Box<dyn Iterator<Item = char>>| {
        letters.next().filter(|_| letters.next().is_none())
    };
    let mut pairs = 0;
    for letter in '\0'..=char::MAX {
        let folded = fold(letter);
        assert_eq!(lower(&folded), folded, "{letter:?} is folded once and for all");
        for other in [sole(Box::new(letter.to_uppercase())), sole(Box::new(letter.to_lowercase()))]
        {
            let Some(other) = other.filter(|other| *other != letter) else { continue };
            assert_eq!(fold(other), folded, "{letter:?} {other:?}");
            pairs += 1;
        }
    }
    assert!(pairs > 2_000);
    for (letter, plain) in [('\u{17f}', "s"), ('\u{131}', "i"), ('\u{130}', "i"), ('\u{212a}', "k")]
    {
        assert_eq!(fold(letter), plain.as_bytes());
    }
}

fn key(raw: &[u8]) -> Option<Vec<u8>> {
    Path::read(raw, EscapedSlash::Either).canonical().map(<[u8]>::to_vec)
}

const UNDOING: [&str; 14] = [
    "end",
    "resolve",
    "decode",
    "decode, but not slashes",
    "backslashes",
    "merge",
    "dots",
    "parameters",
    "ends",
    "slash",
    "query",
    "capitals",
    "line ends",
    "overlong",
];

fn spelling() -> impl Strategy<Value = String> {
    let pieces = vec![
        "/", "/", "%2f", "%2F", "\\", "%5c", ".", "%2e", "..", "a", "A", "%61", "b", ";", "%3b",
        "%3f", "%23", "%20", "%", "%25", "25", "2f", "*", "%c0%af", "%c0%ae", "%c1%a1", "%0a",
        "%09", "...", "#",
    ];
    let rest = proptest::collection::vec(select(pieces), 0..12);
    rest.prop_map(|rest| format!("/{}", rest.concat()))
}

proptest! {
    #[test]
    fn a_path_stays_one(raw in spelling()) {
        for escaped_slash in [EscapedSlash::Either, EscapedSlash::Decode, EscapedSlash::Keep] {
            let once = read_as(&raw, escaped_slash);
            if once == "?" {
                continue;
            }
            prop_assert!(once.starts_with('/'));
            prop_assert!(!once.contains("//"));
            prop_assert_eq!(&read_as(&once, escaped_slash), &once, "{}", raw);
        }
    }

    /// Whatever a server undoes, and in whichever order: what it takes for one page has one key, or none.
    #[test]
    fn no_server_takes_two_keys_for_one_page(
        raw in spelling(),
        by in subsequence(UNDOING.to_vec(), 0..=UNDOING.len()).prop_shuffle(),
    ) {
        let page = by.iter().fold(raw.clone().into_bytes(), |page, by| normalized(&page, by));
        if let (Some(key), Some(of_page)) = (key(raw.as_bytes()), key(&page)) {
            prop_assert!(of_page == key, "{raw} {by:?} {}", page.escape_ascii());
        }
    }

    /// And what it takes for the page that a limit names is counted, by that page's key.
    #[test]
    fn no_server_takes_a_path_for_a_page_that_is_not_counted(
        raw in spelling(),
        by in subsequence(UNDOING.to_vec(), 0..=UNDOING.len()).prop_shuffle(),
    ) {
        let page = by.iter().fold(raw.clone().into_bytes(), |page, by| normalized(&page, by));
        let Ok(page) = String::from_utf8(page) else { return Ok(()) };
        if page.is_empty() || page.contains('*') || page.to_ascii_lowercase().contains("%2a") {
            return Ok(());
        }
        let (pattern, path) = (PathPattern::new(&page), Path::from(&*raw));
        prop_assert!(pattern.may_match(&path), "{raw} {by:?} {page}");
        if let Some(of_page) = key(page.as_bytes()) {
            let counted = key(raw.as_bytes()).or(pattern.only(&path));
            prop_assert_eq!(counted, Some(of_page), "{} {:?} {}", raw, by, page);
        }
    }

    #[test]
    fn any_text_is_a_path(raw in "\\PC{0,40}|[/.%;\\\\0-9a-fA-F?#]{0,40}") {
        for escaped_slash in [EscapedSlash::Either, EscapedSlash::Decode, EscapedSlash::Keep] {
            let path = Path::new(&raw, escaped_slash);
            prop_assert!(path.canonical().is_none_or(|canonical| canonical.starts_with(b"/")));
            let pattern = PathPattern::new(&raw);
            prop_assert!(raw.contains('*') || pattern.may_match(&path), "{}", raw);
        }
    }
}
