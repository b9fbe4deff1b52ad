//! The text of a key part: `ip`, `ip/24,56`, `header:x-user`, `constant:all`.
//!
//! Always   A printed part parses as the same part.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use tidegate_core::diagnostics::nearest_name;
use tidegate_http::AddressBits;

/// Default prefix length of IPv4 addresses: the whole address.
pub const V4_BITS: u8 = AddressBits::V4;
/// Default prefix length of IPv6 addresses: the smallest network that a provider assigns to a customer.
pub const V6_BITS: u8 = AddressBits::V6;

/// Kinds of parts without a name.
const UNNAMED: [&str; 4] = ["ip", "path", "method", "host"];
/// Kinds of parts with a name.
const NAMED: [&str; 5] = ["header", "cookie", "query", "descriptor", "constant"];

/// A name that contains one of these, in any case and with or without separators, is the name of a credential.
const CREDENTIALS: [&str; 10] = [
    "authorization",
    "token",
    "apikey",
    "accesskey",
    "secret",
    "password",
    "passwd",
    "credential",
    "session",
    "cookie",
];

/// A part of the key that a limit counts by: `ip`, `header:x-api-key`, `path`…
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// The client's address, cut to a prefix. Default: [`V4_BITS`] and [`V6_BITS`].
    Ip {
        /// Length of the prefix of an IPv4 address, in bits.
        v4_bits: u8,
        /// Length of the prefix of an IPv6 address, in bits.
        v6_bits: u8,
    },
    /// A header, by its name in lower case.
    Header(String),
    /// A cookie.
    Cookie(String),
    /// The path.
    Path,
    /// A parameter of the query.
    Query(String),
    /// The method.
    Method,
    /// The host.
    Host,
    /// An entry of the Envoy descriptor.
    Descriptor(String),
    /// The same text for every request.
    Constant(String),
}

impl KeyPart {
    /// Returns whether values of this part are credentials, which must not be printed.
    pub fn is_credential(&self) -> bool {
        match self {
            Self::Header(name) | Self::Query(name) | Self::Descriptor(name) => {
                names_credential(name)
            }
            Self::Cookie(_) => true,
            _ => false,
        }
    }
}

/// Returns whether a header, a query parameter or a descriptor entry with this name contains a credential.
pub fn names_credential(name: &str) -> bool {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let plain: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    CREDENTIALS.iter().any(|credential| plain.contains(credential))
}

/// An error in the text of a key part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PartError {
    /// The bytes of the text that are wrong.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl FromStr for KeyPart {
    type Err = PartError;

    fn from_str(text: &str) -> Result<Self, PartError> {
        match text.split_once(':') {
            Some((kind, name)) => named(text, kind, name),
            None => unnamed(text),
        }
    }
}

fn unnamed(text: &str) -> Result<KeyPart, PartError> {
    match text {
        "ip" => Ok(KeyPart::Ip { v4_bits: V4_BITS, v6_bits: V6_BITS }),
        "path" => Ok(KeyPart::Path),
        "method" => Ok(KeyPart::Method),
        "host" => Ok(KeyPart::Host),
        kind if NAMED.contains(&kind) => Err(nameless(text, kind)),
        _ => match text.strip_prefix("ip/") {
            Some(bits) => ip(text, bits),
            None => Err(unknown(text, text)),
        },
    }
}

fn ip(text: &str, bits: &str) -> Result<KeyPart, PartError> {
    let wrong = || PartError {
        span: "ip/".len()..text.len(),
        message: "`ip/` takes two numbers: bits of IPv4 from 1 to 32, bits of IPv6 from 1 to 128"
            .to_owned(),
        hint: Some("write `ip/24,56`, or `ip` for `ip/32,64`".to_owned()),
    };
    let (v4, v6) = bits.split_once(',').ok_or_else(wrong)?;
    let bits = |text: &str, most: u8| {
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let bits: Option<u8> = is_plain.then(|| text.parse().ok()).flatten();
        bits.filter(|bits| (1..=most).contains(bits)).ok_or_else(wrong)
    };
    Ok(KeyPart::Ip { v4_bits: bits(v4, 32)?, v6_bits: bits(v6, 128)? })
}

fn named(text: &str, kind: &str, name: &str) -> Result<KeyPart, PartError> {
    if UNNAMED.contains(&kind) {
        let (span, message) = (kind.len()..text.len(), format!("`{kind}` takes no name"));
        return Err(PartError { span, message, hint: Some(format!("write `{kind}`")) });
    }
    if !NAMED.contains(&kind) {
        return Err(unknown(text, kind));
    }
    if name.is_empty() {
        return Err(nameless(text, kind));
    }
    let name_span = kind.len() + 1..text.len();
    match kind {
        "header" if !is_token(name) => Err(invalid_name(name_span, "a header")),
        "cookie" if !is_token(name) => Err(invalid_name(name_span, "a cookie")),
        "header" => Ok(KeyPart::Header(name.to_ascii_lowercase())),
        "cookie" => Ok(KeyPart::Cookie(name.to_owned())),
        "query" => Ok(KeyPart::Query(name.to_owned())),
        "descriptor" => Ok(KeyPart::Descriptor(name.to_owned())),
        _ => Ok(KeyPart::Constant(name.to_owned())),
    }
}

/// Returns whether this is a valid name of a header or a cookie (RFC 9110, 5.6.2).
fn is_token(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn invalid_name(span: Range<usize>, what: &str) -> PartError {
    let message = format!("this is not a valid name of {what}");
    PartError { span, message, hint: Some("use letters, digits and `-`".to_owned()) }
}

fn nameless(text: &str, kind: &str) -> PartError {
    let example = match kind {
        "header" => "header:x-api-key",
        "cookie" => "cookie:session",
        "query" => "query:user",
        "descriptor" => "descriptor:tenant",
        _ => "constant:all",
    };
    PartError {
        span: 0..text.len(),
        message: format!("`{kind}` needs a name"),
        hint: Some(format!("such as `{example}`")),
    }
}

fn unknown(text: &str, kind: &str) -> PartError {
    let kinds = UNNAMED.iter().chain(&NAMED).copied();
    let near = (kind.len() <= 64).then(|| nearest_name(kind, kinds)).flatten();
    let hint = match near {
        _ if looks_like_header(text) => {
            format!("did you mean `header:{}`?", text.to_ascii_lowercase())
        }
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            "the parts are ip, ip/24,56, header:NAME, cookie:NAME, path, query:NAME, method, host, \
                 descriptor:KEY, constant:TEXT"
                .to_owned()
        }
    };
    let end = if kind.is_empty() { text.len() } else { kind.len() };
    PartError { span: 0..end, message: "unknown key part".to_owned(), hint: Some(hint) }
}

/// Returns whether the text looks like the name of a header: a well-known one, or one with a `-`.
fn looks_like_header(text: &str) -> bool {
    let is_known =
        ["authorization", "cookie", "forwarded"].iter().any(|it| text.eq_ignore_ascii_case(it));
    text.len() <= 64 && is_token(text) && (is_known || text.contains('-'))
}

impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip { v4_bits: V4_BITS, v6_bits: V6_BITS } => f.write_str("ip"),
            Self::Ip { v4_bits, v6_bits } => write!(f, "ip/{v4_bits},{v6_bits}"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Path => f.write_str("path"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Method => f.write_str("method"),
            Self::Host => f.write_str("host"),
            Self::Descriptor(key) => write!(f, "descriptor:{key}"),
            Self::Constant(text) => write!(f, "constant:{text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_part_prints_as_the_user_wrote_it() {
        for text in [
            "ip",
            "ip/24,56",
            "ip/1,128",
            "header:x-user",
            "cookie:Sid",
            "path",
            "query:q",
            "method",
            "host",
            "descriptor:tenant",
            "constant:a:b",
        ] {
            assert_eq!(text.parse::<KeyPart>().unwrap().to_string(), text);
        }
        assert_eq!("header:X-User".parse(), Ok(KeyPart::Header("x-user".to_owned())));
        assert_eq!("ip/32,64".parse(), "ip".parse::<KeyPart>());
    }

    #[test]
    fn an_error_points_at_the_wrong_bytes() {
        let wrong = |text: &str| text.parse::<KeyPart>().unwrap_err();
        assert_eq!(wrong("header:").message, "`header` needs a name");
        assert_eq!(wrong("header").hint.unwrap(), "such as `header:x-api-key`");
        assert_eq!(wrong("haeder:x").hint.unwrap(), "did you mean `header`?");
        assert_eq!(wrong("x-api-key").hint.unwrap(), "did you mean `header:x-api-key`?");
        assert_eq!(wrong("User-Agent").hint.unwrap(), "did you mean `header:user-agent`?");
        assert_eq!(wrong("haeder:x").span, 0..6);
        assert_eq!(wrong("header:a b").span, 7..10);
        assert_eq!(wrong("host:x").message, "`host` takes no name");
        for text in
            ["ip/24", "ip/0,64", "ip/33,64", "ip/24,129", "ip/+24,56", "ip/,", "", ":", ":x"]
        {
            assert!(text.parse::<KeyPart>().is_err(), "{text:?} was read");
        }
    }

    /// Returns the name that the hint about `header:authorization` proposes.
    fn proposed_for_authorization() -> String {
        let text = "[server.auth]\ntokens = [\"s3cret\"]\n[limits.a]\nrule = \"1/s\"\n\
                    key = \"header:authorization\"\n";
        let error = crate::config::tests::read(text, "t.toml").unwrap_err().to_string();
        let hint = error.split_once("such as `").expect("the hint names a header").1;
        hint.split_once('`').unwrap().0.to_owned()
    }

    #[test]
    fn names_of_credentials_are_recognized() {
        let is_credential = |text: &str| text.parse::<KeyPart>().unwrap().is_credential();
        let proposed = proposed_for_authorization();
        assert!(proposed.starts_with("header:") && is_credential(&proposed), "{proposed}");
        for text in [
            "header:Authorization",
            "header:proxy-authorization",
            "header:cookie",
            "header:x-api-key",
            "header:x-apikey",
            "header:x-auth-token",
            "header:x-session-id",
            "header:x-client-secret",
            "query:api_key",
            "query:apiKey",
            "query:access_token",
            "query:Password",
            "cookie:any",
            "descriptor:api_key",
        ] {
            assert!(is_credential(text), "{text}");
        }
        for text in ["ip", "path", "header:x-user", "query:user", "constant:token", "query:page"] {
            assert!(!is_credential(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_a_valid_part_prints_back(text in "[a-z/:0-9,]{0,12}|\\PC*") {
            match text.parse::<KeyPart>() {
                Ok(part) => prop_assert_eq!(part.to_string().parse::<KeyPart>(), Ok(part)),
                Err(error) => prop_assert!(text.get(error.span).is_some()),
            }
        }
    }
}
