//! The fields of a limit that is alone, as far as they are the same in every answer: the shortest way to say it.
//!
//! Always   It says what [`HeaderStyle::Draft11`](super::HeaderStyle) says, but for `Retry-After`.
//! Bound    The policies of a program's limits are kept for ever, each once: as many as it has rules with names. So
//!          they are headers without a count of who uses them, which all cores would have to agree on.

use super::fields::{POLICY, RATE_LIMIT, policy, string};
use super::{Answer, Told};
use crate::short::Out;
use http::{HeaderMap, HeaderValue};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use tidegate::{Rule, Timestamp};

/// A name that fits into so much is written the quick way.
const START_BYTES: usize = 40;
/// The start, two numbers of structured fields and what stands between them.
const LINE_BYTES: usize = START_BYTES + 48;

#[derive(Clone, Debug)]
pub(crate) struct Standing {
    policy: HeaderValue,
    /// `"api";r=`
    start: [u8; START_BYTES],
    start_count: usize,
}

/// The two fields, ready to be added.
#[derive(Debug)]
pub(crate) struct Said {
    policy: HeaderValue,
    left: HeaderValue,
}

impl Standing {
    /// `None` if the name is too long for the quick way.
    pub(crate) fn new(name: &str, rule: &Rule) -> Option<Self> {
        let mut start = Vec::new();
        string(&mut start, name);
        start.put(b";r=");
        if start.len() > START_BYTES {
            return None;
        }
        let limit = rule.limit();
        let decision = limit.peek(&limit.fresh(Timestamp::EPOCH), Timestamp::EPOCH, 0);
        let mut text = Vec::new();
        policy(&mut text, &Told { name, rule, answer: Answer::obeyed(decision) });
        let policy = HeaderValue::from_static(kept(String::from_utf8(text).ok()?));
        let start_count = start.len();
        start.resize(START_BYTES, b' ');
        Some(Self { policy, start: start.try_into().ok()?, start_count })
    }

    #[inline]
    pub(crate) fn say(&self, told: &Told<'_>) -> Said {
        let mut line = [0; LINE_BYTES];
        line[..START_BYTES].copy_from_slice(&self.start);
        let mut end = put_digits(&mut line, self.start_count, told.remaining());
        if let Some(seconds) = told.window_s() {
            line[end..end + 3].copy_from_slice(b";t=");
            end = put_digits(&mut line, end + 3, seconds);
        }
        let left = HeaderValue::from_bytes(&line[..end]);
        let left = left.expect("fields are written in visible ASCII");
        Said { policy: self.policy.clone(), left }
    }
}

#[inline]
fn put_digits(line: &mut [u8; LINE_BYTES], start: usize, number: u64) -> usize {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number).as_bytes();
    let end = start + digits.len();
    line[start..end].copy_from_slice(digits);
    end
}

impl Said {
    #[inline]
    pub(crate) fn add(self, headers: &mut HeaderMap) {
        headers.append(POLICY, self.policy);
        headers.append(RATE_LIMIT, self.left);
    }
}

/// The same text, for ever.
fn kept(text: String) -> &'static str {
    static KEPT: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = kept.get_or_insert_default();
    if let Some(known) = kept.get(&*text) {
        return known;
    }
    let text: &'static str = Box::leak(text.into_boxed_str());
    kept.insert(text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::HeaderStyle;
    use proptest::prelude::*;
    use tidegate::{Decision, Span};

    proptest! {
        #[test]
        fn it_says_what_the_style_says(
            name in "[ -~\u{e9}]{0,30}", remaining in any::<u64>(), reset_us in any::<u64>(),
        ) {
            let rule: Rule = "100/s burst 20".parse().unwrap();
            let mut decision = Decision::UNLIMITED;
            (decision.limit, decision.remaining) = (20, remaining);
            decision.reset_after = Span::from_micros(reset_us);
            let told = Told { name: &name, rule: &rule, answer: Answer::obeyed(decision) };
            let (mut quick, mut styled) = (HeaderMap::new(), HeaderMap::new());
            HeaderStyle::Draft11.write(&mut styled, &[told], &told.answer);
            if let Some(standing) = Standing::new(&name, &rule) {
                standing.say(&told).add(&mut quick);
                prop_assert_eq!(quick, styled);
            } else {
                prop_assert!(name.len() * 3 + 5 > START_BYTES, "a byte is three characters at the most");
            }
        }
    }

    #[test]
    fn a_policy_is_kept_once() {
        let rule: Rule = "7/s".parse().unwrap();
        let of = || Standing::new("kept once", &rule).unwrap().policy;
        let (one, other) = (of(), of());
        assert!(std::ptr::eq(one.as_bytes(), other.as_bytes()));
    }
}
