//! The fields of an answer that tell a client what it has left.
//!
//! Always   Which fields these are is not settled: the draft changes, and clients know older ones. Each way of
//!          saying it is a [`HeaderStyle`]; who asks chooses.
//! Always   At most [`POLICIES_MAX`] limits are listed, those that deny first: a client's buffer for fields is
//!          small.

use super::page::{Page, number};
use super::policy::{Told, retry_after_s};
use crate::engine::Answer;
use http::header::{HeaderName, RETRY_AFTER};
use http::request::Parts;

/// So many limits are told of in one field.
const POLICIES_MAX: usize = 8;

/// How a client is told what it has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// What the request asks for by `X-RateLimit-Style: …` or `?headers=…`.
    pub(crate) fn of(request: &Parts) -> Self {
        const STYLE: HeaderName = HeaderName::from_static("x-ratelimit-style");
        let asked = match request.uri.query() {
            None => None,
            Some(query) => {
                query.split('&').find_map(|pair| pair.strip_prefix("headers=")).map(str::as_bytes)
            }
        };
        match asked.or_else(|| request.headers.get(STYLE).map(http::HeaderValue::as_bytes)) {
            Some(b"legacy") => Self::Legacy,
            Some(b"draft-06") => Self::Draft06,
            Some(b"next") => Self::NextAC,
            _ => Self::Draft11,
        }
    }

    /// Writes what each of these said, and what `all` of them together said.
    pub(crate) fn write(self, page: &mut Page, told: &[Told<'_>], all: &Answer) {
        if let Some(seconds) = retry_after_s(all) {
            page.field(RETRY_AFTER, |out| number(out, seconds));
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

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const LIMIT_06: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING_06: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET_06: HeaderName = HeaderName::from_static("ratelimit-reset");
const LIMIT_X: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING_X: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET_X: HeaderName = HeaderName::from_static("x-ratelimit-reset");

fn structured(page: &mut Page, chosen: &Chosen<'_>, [remaining, window]: [&str; 2]) {
    page.field(POLICY, |out| listed(out, chosen, policy));
    page.field(RATE_LIMIT, |out| {
        listed(out, chosen, |out, told| {
            string(out, told.limit.name());
            parameter(out, remaining, told.remaining());
            if let Some(seconds) = told.window_s() {
                parameter(out, window, seconds);
            }
        });
    });
}

fn policy(out: &mut Vec<u8>, told: &Told<'_>) {
    string(out, told.limit.name());
    let (quota, window_s) = told.quota();
    parameter(out, "q", quota);
    if told.limit.rule().is_concurrency() {
        out.extend_from_slice(br#";qu="concurrent-requests""#);
    }
    if let Some(seconds) = window_s {
        parameter(out, "w", seconds);
    }
}

fn draft_06_policy(out: &mut Vec<u8>, told: &Told<'_>) {
    let (quota, window_s) = told.quota();
    number(out, quota);
    if let Some(seconds) = window_s {
        parameter(out, "w", seconds);
    }
}

/// The three fields that have no room for more than one limit.
fn plain(page: &mut Page, told: &Told<'_>, [limit, remaining, reset]: [HeaderName; 3]) {
    page.field(limit, |out| number(out, told.answer.decision.limit));
    page.field(remaining, |out| number(out, told.answer.decision.remaining));
    page.field(reset, |out| number(out, told.answer.decision.reset_after.as_secs_ceil()));
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
        for one in told.iter().filter(|one| one.answer.passes() == is_passing && one.is_limited()) {
            let is_there = |other: &&Told<'_>| std::ptr::eq(other.limit, one.limit);
            if count < POLICIES_MAX && !chosen.iter().flatten().any(is_there) {
                chosen[count] = Some(one);
                count += 1;
            }
        }
    }
    chosen
}

fn listed(out: &mut Vec<u8>, chosen: &Chosen<'_>, write: impl Fn(&mut Vec<u8>, &Told<'_>)) {
    for (place, told) in chosen.iter().flatten().enumerate() {
        if place > 0 {
            out.extend_from_slice(b", ");
        }
        write(out, told);
    }
}

fn parameter(out: &mut Vec<u8>, name: &str, value: u64) {
    out.push(b';');
    out.extend_from_slice(name.as_bytes());
    out.push(b'=');
    number(out, value);
}

/// A string of RFC 9651, which has only visible ASCII: everything else is percent-encoded.
fn string(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ => {
                let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
                out.extend_from_slice(&[b'%', high, low]);
            }
        }
    }
    out.push(b'"');
}
