//! The fields of an answer that tell a client what it has left.
//!
//! Always   Which fields these are is not settled: the draft changes, and clients know older ones. Each way of
//!          saying it is a [`HeaderStyle`]; who asks chooses.
//! Always   At most [`POLICIES_MAX`] limits are listed, those that deny first: a client's buffer for fields is
//!          small.

use super::Answer;
use super::policy::{FIELD_INTEGER_MAX, Told, resets_after, retry_after_s};
use crate::short::{Out, Short};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use tidegate::Span;

/// So many limits are told of in one field.
const POLICIES_MAX: usize = 8;

/// How a client is told what it has left.
///
/// ```
/// use http::HeaderMap;
/// use tidegate_tower::{Answer, HeaderStyle, Told};
/// # use tidegate::{Gate, ManualClock, Rule};
///
/// let rule: Rule = "10/s".parse()?;
/// let gate = Gate::with_clock(rule.clone(), ManualClock::new());
/// let answer = Answer::obeyed(gate.check());
///
/// let mut headers = HeaderMap::new();
/// let told = [Told { name: "api", rule: &rule, answer }];
/// HeaderStyle::Draft11.write(&mut headers, &told, &answer);
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
    /// What is proposed for the next one: `RateLimit: "api";a=9;w=1`.
    NextAC,
    /// draft-06: `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset`.
    Draft06,
    /// [`Draft11`](Self::Draft11) and `X-RateLimit-Limit`, `-Remaining`, `-Reset`.
    Legacy,
}

impl HeaderStyle {
    /// Writes what each of these said, and what `all` of them together said. A number that nobody knows is not written.
    ///
    /// ```
    /// use tidegate_tower::{Answer, HeaderStyle};
    ///
    /// let mut headers = http::HeaderMap::new();
    /// HeaderStyle::Legacy.write(&mut headers, &[], &Answer::UNLIMITED);
    /// assert!(headers.is_empty(), "where nothing is limited, nothing is told");
    /// ```
    pub fn write(self, page: &mut impl Fields, told: &[Told<'_>], all: &Answer) {
        if let Some(seconds) = retry_after_s(all) {
            page.field(RETRY_AFTER, |out| out.put_number(seconds));
        }
        let chosen = chosen(told);
        let Some(tightest) = tightest(&chosen) else { return };
        match self {
            Self::Draft11 => structured(page, &chosen, ["r", "t"]),
            Self::NextAC => structured(page, &chosen, ["a", "w"]),
            Self::Draft06 => {
                page.field(POLICY, |out| listed(out, &chosen, draft_06_policy));
                plain(page, tightest, [LIMIT_06, REMAINING_06, RESET_06]);
            }
            Self::Legacy => {
                structured(page, &chosen, ["r", "t"]);
                plain(page, tightest, [LIMIT_X, REMAINING_X, RESET_X]);
            }
        }
    }
}

/// Takes fields, each written by whoever has something to say.
///
/// ```
/// use tidegate_tower::{Fields, Out};
///
/// let mut headers = http::HeaderMap::new();
/// headers.field(http::header::RETRY_AFTER, |out| out.put_number(7));
/// assert_eq!(headers["retry-after"], "7");
/// ```
pub trait Fields {
    /// What a value is written to.
    type Value: Out;

    /// Takes a field, whose value `write` appends in visible ASCII.
    ///
    /// ```
    /// use tidegate_tower::{Fields, Out};
    ///
    /// let mut headers = http::HeaderMap::new();
    /// headers.field(http::header::ALLOW, |out| out.put(b"GET"));
    /// assert_eq!(headers["allow"], "GET");
    /// ```
    fn field(&mut self, name: HeaderName, write: impl FnOnce(&mut Self::Value));
}

/// `RateLimit` and `RateLimit-Policy` are lists: what another layer has said in them stays. Others are replaced, and
/// the layer that is nearest to the client has the last word.
impl Fields for HeaderMap {
    type Value = Value;

    #[inline]
    fn field(&mut self, name: HeaderName, write: impl FnOnce(&mut Value)) {
        let mut value = Value(Short::new());
        write(&mut value);
        if name == RATE_LIMIT || name == POLICY {
            self.append(name, value.finish());
        } else {
            self.insert(name, value.finish());
        }
    }
}

/// The value of a field while it is written.
///
/// ```
/// use tidegate_tower::{Fields, Out};
///
/// let mut headers = http::HeaderMap::new();
/// headers.field(http::header::AGE, |value| value.put_number(3));
/// assert_eq!(headers["age"], "3");
/// ```
#[expect(missing_debug_implementations, reason = "it lives for one line")]
pub struct Value(Short);

impl Value {
    #[inline]
    fn finish(&self) -> HeaderValue {
        HeaderValue::from_bytes(self.0.as_bytes()).expect("fields are written in visible ASCII")
    }
}

impl Out for Value {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.0.put(bytes);
    }
}

pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const LIMIT_06: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING_06: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET_06: HeaderName = HeaderName::from_static("ratelimit-reset");
const LIMIT_X: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING_X: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET_X: HeaderName = HeaderName::from_static("x-ratelimit-reset");

fn structured(page: &mut impl Fields, chosen: &Chosen<'_>, [remaining, window]: [&str; 2]) {
    page.field(POLICY, |out| listed(out, chosen, policy));
    page.field(RATE_LIMIT, |out| {
        listed(out, chosen, |out, told| {
            string(out, told.name);
            parameter(out, remaining, told.remaining());
            if let Some(seconds) = told.window_s() {
                parameter(out, window, seconds);
            }
        });
    });
}

pub(super) fn policy(out: &mut impl Out, told: &Told<'_>) {
    string(out, told.name);
    let (quota, window_s) = told.quota();
    parameter(out, "q", quota);
    if told.rule.is_concurrency() {
        out.put(br#";qu="concurrent-requests""#);
    }
    if let Some(seconds) = window_s {
        parameter(out, "w", seconds);
    }
}

fn draft_06_policy(out: &mut impl Out, told: &Told<'_>) {
    let (quota, window_s) = told.quota();
    out.put_number(quota);
    if let Some(seconds) = window_s {
        parameter(out, "w", seconds);
    }
}

/// The three fields that have no room for more than one limit.
fn plain(page: &mut impl Fields, told: &Told<'_>, [limit, remaining, reset]: [HeaderName; 3]) {
    let decision = &told.answer.decision;
    let numbers = [
        (limit, decision.known_limit()),
        (remaining, decision.known_remaining()),
        (reset, resets_after(decision).map(Span::as_secs_ceil)),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            page.field(name, |out| out.put_number(number.min(FIELD_INTEGER_MAX)));
        }
    }
}

/// The limit that stands in the way most: one that denies, or else the one with the least left.
fn tightest<'a>(chosen: &Chosen<'a>) -> Option<&'a Told<'a>> {
    let told = chosen.iter().flatten().copied();
    told.min_by_key(|told| (told.answer.passes(), told.answer.decision.remaining))
}

/// The limits that are told of.
type Chosen<'a> = [Option<&'a Told<'a>>; POLICIES_MAX];

/// Those that have numbers, each once, those that deny first.
fn chosen<'a>(told: &'a [Told<'a>]) -> Chosen<'a> {
    let mut chosen: Chosen<'a> = [None; POLICIES_MAX];
    let mut count = 0;
    for is_passing in [false, true] {
        for one in told.iter().filter(|one| one.answer.passes() == is_passing && one.is_known()) {
            let is_there = |other: &&Told<'_>| std::ptr::eq(other.rule, one.rule);
            if count < POLICIES_MAX && !chosen.iter().flatten().any(is_there) {
                chosen[count] = Some(one);
                count += 1;
            }
        }
    }
    chosen
}

fn listed<O: Out>(out: &mut O, chosen: &Chosen<'_>, write: impl Fn(&mut O, &Told<'_>)) {
    for (place, told) in chosen.iter().flatten().enumerate() {
        if place > 0 {
            out.put(b", ");
        }
        write(out, told);
    }
}

fn parameter(out: &mut impl Out, name: &str, value: u64) {
    out.put(b";");
    out.put(name.as_bytes());
    out.put(b"=");
    out.put_number(value);
}

/// A string of RFC 9651, which has only visible ASCII: everything else is percent-encoded.
pub(super) fn string(out: &mut impl Out, text: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.put(b"\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.put(&[b'\\', byte]),
            b' '..=b'~' => out.put(&[byte]),
            _ => {
                let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
                out.put(&[b'%', high, low]);
            }
        }
    }
    out.put(b"\"");
}
