//! The header fields that report a limit's numbers: `RateLimit`, `RateLimit-Policy`, `X-RateLimit-*` and `Retry-After`.
//!
//! The fields are not standardized yet: the draft still changes, and clients know older versions. Each version is a
//! [`HeaderStyle`], and the caller chooses one.
//!
//! Bound     A field lists at most [`POLICIES_MAX`] limits, those that deny first: clients have small header buffers.

use crate::ByteWriter;
use crate::limit_status::{FIELD_INTEGER_MAX, LimitStatus, reset_after, retry_after_secs};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use smallvec::SmallVec;
use tidegate::{Decision, Span};

/// Maximum number of limits in one field.
const POLICIES_MAX: usize = 8;

/// Which header fields tell a client its limits.
///
/// ```
/// use http::HeaderMap;
/// use tidegate_http::{HeaderStyle, LimitStatus};
/// # use tidegate::{Gate, ManualClock, Rule};
///
/// let rule: Rule = "10/s".parse()?;
/// let gate = Gate::with_clock(rule.clone(), ManualClock::new());
/// let decision = gate.check();
///
/// let mut headers = HeaderMap::new();
/// let limits = [LimitStatus { name: "api", rule: &rule, decision }];
/// HeaderStyle::Draft11.write(&mut headers, &limits, &decision);
/// assert_eq!(headers["ratelimit-policy"], r#""api";q=10;w=1"#);
/// assert_eq!(headers["ratelimit"], r#""api";r=9;t=1"#);
/// # Ok::<(), tidegate::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderStyle {
    /// draft-ietf-httpapi-ratelimit-headers-11: `RateLimit: "api";r=9;t=1`.
    #[default]
    Draft11,
    /// The parameters proposed for the next draft: `RateLimit: "api";a=9;w=1`.
    NextAC,
    /// draft-06: `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset`.
    Draft06,
    /// [`Draft11`](Self::Draft11) and `X-RateLimit-Limit`, `-Remaining`, `-Reset`.
    Legacy,
}

impl HeaderStyle {
    /// Writes the fields for these limits, and `Retry-After` if their `joint` decision is a denial. Numbers that are
    /// unknown are left out.
    pub fn write(self, out: &mut impl FieldWriter, limits: &[LimitStatus<'_>], joint: &Decision) {
        if let Some(seconds) = retry_after_secs(joint) {
            out.field(RETRY_AFTER, |out| out.put_number(seconds));
        }
        let listed = listed(limits);
        let Some(tightest) = tightest(&listed) else { return };
        match self {
            Self::Draft11 => structured_fields(out, &listed, [";r=", ";t="]),
            Self::NextAC => structured_fields(out, &listed, [";a=", ";w="]),
            Self::Draft06 => {
                out.field(POLICY, |out| put_list(out, &listed, put_draft_06_policy));
                plain_fields(out, tightest, [LIMIT_06, REMAINING_06, RESET_06]);
            }
            Self::Legacy => {
                structured_fields(out, &listed, [";r=", ";t="]);
                plain_fields(out, tightest, [LIMIT_X, REMAINING_X, RESET_X]);
            }
        }
    }
}

/// Takes header fields.
pub trait FieldWriter {
    /// The buffer that a value is written to.
    type Value: ByteWriter;

    /// Adds a field, whose value `write` appends in visible ASCII.
    fn field(&mut self, name: HeaderName, write: impl FnOnce(&mut Self::Value));
}

/// `RateLimit` and `RateLimit-Policy` are lists, so fields of inner layers stay. Other fields are replaced: the layer nearest
/// to the client decides.
impl FieldWriter for HeaderMap {
    type Value = Vec<u8>;

    #[inline]
    fn field(&mut self, name: HeaderName, write: impl FnOnce(&mut Self::Value)) {
        add_field(self, name, header_value(write));
    }
}

/// Fields that are written before there is a response, with the numbers and the rule of the decision.
#[derive(Clone, Debug, Default)]
pub struct PreparedFields {
    fields: SmallVec<[(HeaderName, HeaderValue); 2]>,
}

impl PreparedFields {
    /// Adds the fields to the headers of a response, as the [`FieldWriter`] for [`HeaderMap`] does.
    #[inline]
    pub fn add_to(self, headers: &mut HeaderMap) {
        headers.reserve(self.fields.len());
        for (name, value) in self.fields {
            add_field(headers, name, value);
        }
    }
}

impl FieldWriter for PreparedFields {
    type Value = Vec<u8>;

    #[inline]
    fn field(&mut self, name: HeaderName, write: impl FnOnce(&mut Self::Value)) {
        self.fields.push((name, header_value(write)));
    }
}

fn header_value(write: impl FnOnce(&mut Vec<u8>)) -> HeaderValue {
    let mut value = Vec::with_capacity(64);
    write(&mut value);
    HeaderValue::try_from(value).expect("fields are written in visible ASCII")
}

fn add_field(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    if name == RATE_LIMIT || name == POLICY {
        headers.append(name, value);
    } else {
        headers.insert(name, value);
    }
}

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const LIMIT_06: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING_06: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET_06: HeaderName = HeaderName::from_static("ratelimit-reset");
const LIMIT_X: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING_X: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET_X: HeaderName = HeaderName::from_static("x-ratelimit-reset");

fn structured_fields(
    out: &mut impl FieldWriter,
    listed: &Listed<'_>,
    [remaining, window]: [&str; 2],
) {
    out.field(POLICY, |out| put_list(out, listed, put_policy));
    out.field(RATE_LIMIT, |out| {
        put_list(out, listed, |out, limit| {
            put_string(out, limit.name);
            put_parameter(out, remaining, limit.remaining());
            if let Some(seconds) = limit.window_secs() {
                put_parameter(out, window, seconds);
            }
        });
    });
}

fn put_policy(out: &mut impl ByteWriter, limit: &LimitStatus<'_>) {
    put_string(out, limit.name);
    let (quota, window_secs) = limit.quota();
    put_parameter(out, ";q=", quota);
    if limit.rule.is_concurrency() {
        out.put(br#";qu="concurrent-requests""#);
    }
    if let Some(seconds) = window_secs {
        put_parameter(out, ";w=", seconds);
    }
}

fn put_draft_06_policy(out: &mut impl ByteWriter, limit: &LimitStatus<'_>) {
    let (quota, window_secs) = limit.quota();
    out.put_number(quota);
    if let Some(seconds) = window_secs {
        put_parameter(out, ";w=", seconds);
    }
}

/// Writes the three fields that can report only one limit.
fn plain_fields(
    out: &mut impl FieldWriter,
    limit: &LimitStatus<'_>,
    [limit_name, remaining, reset]: [HeaderName; 3],
) {
    let numbers = [
        (limit_name, limit.decision.known_limit()),
        (remaining, limit.decision.known_remaining()),
        (reset, reset_after(&limit.decision).map(Span::as_secs_ceil)),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            out.field(name, |out| out.put_number(number.min(FIELD_INTEGER_MAX)));
        }
    }
}

/// Returns a limit that denies, or else the one with the least remaining.
fn tightest<'a>(listed: &Listed<'a>) -> Option<&'a LimitStatus<'a>> {
    let key = |limit: &&LimitStatus<'_>| (!limit.decision.is_deny(), limit.decision.remaining);
    listed.iter().copied().min_by_key(key)
}

/// The limits that a field lists.
type Listed<'a> = SmallVec<[&'a LimitStatus<'a>; POLICIES_MAX]>;

/// Returns the limits that have numbers, each once, those that deny first.
fn listed<'a>(limits: &'a [LimitStatus<'a>]) -> Listed<'a> {
    let mut listed = Listed::new();
    for is_denying in [true, false] {
        let known = limits.iter().filter(|limit| limit.is_known());
        for limit in known.filter(|limit| limit.decision.is_deny() == is_denying) {
            let is_listed = listed.iter().any(|other| std::ptr::eq(other.rule, limit.rule));
            if listed.len() < POLICIES_MAX && !is_listed {
                listed.push(limit);
            }
        }
    }
    listed
}

fn put_list<O: ByteWriter>(
    out: &mut O,
    listed: &Listed<'_>,
    put: impl Fn(&mut O, &LimitStatus<'_>),
) {
    for (index, limit) in listed.iter().enumerate() {
        if index > 0 {
            out.put(b", ");
        }
        put(out, limit);
    }
}

/// Appends a parameter; `name` is its text up to the value, such as `;q=`.
fn put_parameter(out: &mut impl ByteWriter, name: &str, value: u64) {
    out.put(name.as_bytes());
    out.put_number(value);
}

/// Appends a string of RFC 9651, which consists of visible ASCII. Other bytes are percent-encoded.
fn put_string(out: &mut impl ByteWriter, text: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.put(b"\"");
    let mut rest = text.as_bytes();
    while let Some(place) =
        rest.iter().position(|b| !matches!(b, b' '..=b'~') || matches!(b, b'"' | b'\\'))
    {
        let (plain, special) = rest.split_at(place);
        out.put(plain);
        match special[0] {
            byte @ (b'"' | b'\\') => out.put(&[b'\\', byte]),
            byte => out.put(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
        rest = &special[1..];
    }
    out.put(rest);
    out.put(b"\"");
}
