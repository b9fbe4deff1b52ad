//! What a limit that is alone says, as far as it is the same in every answer: the shortest way to say it.
//!
//! Always   It says what [`HeaderStyle::Draft11`](super::HeaderStyle) says, and what
//!          [`put_denial`](super::put_denial) does.
//! Bound    What stands is kept for ever, once for each rule with a name, so that answers refer to it without a count of who
//!          does, which all cores would have to agree on. There are at most [`STANDING_MAX`]; who comes later has no
//!          quick way.

use super::fields::{POLICY, RATE_LIMIT, policy, string};
use super::form::{BLANK, Form};
use super::recent::{Recent, Says};
use super::{Answer, Told};
use crate::short::Out;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::thread::LocalKey;
use tidegate::{Rule, Timestamp};

/// So many are kept: more than a program has limits, unless it makes new ones for ever.
const STANDING_MAX: usize = 1_024;
/// A name that fits into so much is written the quick way.
const START_BYTES: usize = 40;
/// The start, two numbers of structured fields and what stands between them.
const LINE_BYTES: usize = START_BYTES + 48;

/// There is one of each kind, so it is the same as another if it lies where the other does.
#[derive(Debug)]
pub(crate) struct Standing {
    policy: HeaderValue,
    /// Both fields of an answer that has no others yet, the one for what is left first and blank. To copy a map is cheaper
    /// than to make one, which hashes every name.
    alone: HeaderMap,
    /// `"api";r=`
    start: [u8; START_BYTES],
    start_count: usize,
    form: Form,
}

/// What is told in an answer: the numbers, and what stands around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    standing: &'static Standing,
    remaining: u64,
    window_s: Option<u64>,
}

impl Standing {
    /// `None` if there is no quick way: the name is too long for it, or there are too many.
    pub(crate) fn of(name: &str, rule: &Rule) -> Option<&'static Self> {
        let mut start = Vec::new();
        string(&mut start, name);
        start.put(b";r=");
        let start_count = start.len();
        if start_count > START_BYTES {
            return None;
        }
        start.resize(START_BYTES, b' ');
        let limit = rule.limit();
        let decision = limit.peek(&limit.fresh(Timestamp::EPOCH), Timestamp::EPOCH, 0);
        let mut text = Vec::new();
        policy(&mut text, &Told { name, rule, answer: Answer::obeyed(decision) });
        let (text, start) = (String::from_utf8(text).ok()?, start.try_into().ok()?);
        kept(name, &text, |text| {
            let policy = HeaderValue::from_static(text);
            let form = Form::new(name, policy.clone())?;
            let fields = [(RATE_LIMIT, BLANK), (POLICY, policy.clone())];
            let alone: HeaderMap = fields.into_iter().collect();
            // A map does not promise to go through its fields in the order they were put in.
            let is_in_order = alone.values().next() == Some(&BLANK);
            is_in_order.then_some(Self { policy, alone, start, start_count, form })
        })
    }

    #[inline]
    pub(crate) fn say(&'static self, told: &Told<'_>) -> Said {
        Said { standing: self, remaining: told.remaining(), window_s: told.window_s() }
    }
}

impl Said {
    /// Adds the fields.
    #[inline]
    pub(crate) fn add(self, headers: &mut HeaderMap) {
        if headers.capacity() == 0 {
            headers.clone_from(&self.standing.alone);
            if let Some(left) = headers.values_mut().next() {
                *left = self.value();
            }
            return;
        }
        headers.append(POLICY, self.standing.policy.clone());
        headers.append(RATE_LIMIT, self.value());
    }

    /// The whole response to who is denied so.
    #[inline]
    pub(crate) fn refusal(self, status: StatusCode, answer: &Answer) -> Response<Bytes> {
        self.standing.form.filled(status, self.value(), answer)
    }
}

/// The value of `RateLimit`.
impl Says for Said {
    #[inline]
    fn recent() -> &'static LocalKey<RefCell<Recent<Self>>> {
        thread_local! {
            static RECENT: RefCell<Recent<Said>> = const { RefCell::new(Recent::new()) };
        }
        &RECENT
    }

    #[inline]
    fn number(self) -> u64 {
        self.remaining.wrapping_add(self.window_s.unwrap_or(0))
    }

    #[inline]
    fn written(self) -> HeaderValue {
        let mut line = [0; LINE_BYTES];
        line[..START_BYTES].copy_from_slice(&self.standing.start);
        let mut end = put_digits(&mut line, self.standing.start_count, self.remaining);
        if let Some(seconds) = self.window_s {
            line[end..end + 3].copy_from_slice(b";t=");
            end = put_digits(&mut line, end + 3, seconds);
        }
        HeaderValue::from_bytes(&line[..end]).expect("fields are written in visible ASCII")
    }
}

impl PartialEq for Standing {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Standing {}

#[inline]
fn put_digits(line: &mut [u8; LINE_BYTES], start: usize, number: u64) -> usize {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number).as_bytes();
    let end = start + digits.len();
    line[start..end].copy_from_slice(digits);
    end
}

/// By name and policy. Two names may be one in a policy, which has no letters but ASCII; in a problem they are two.
type Kept = HashMap<(String, String), Option<&'static Standing>>;

/// The same for the same name and policy, for ever.
fn kept(
    name: &str,
    policy: &str,
    make: impl FnOnce(&'static str) -> Option<Standing>,
) -> Option<&'static Standing> {
    static KEPT: Mutex<Option<Kept>> = Mutex::new(None);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    keep(kept.get_or_insert_default(), name, policy, make)
}

fn keep(
    kept: &mut Kept,
    name: &str,
    policy: &str,
    make: impl FnOnce(&'static str) -> Option<Standing>,
) -> Option<&'static Standing> {
    let key = (name.to_owned(), policy.to_owned());
    if let Some(standing) = kept.get(&key) {
        return *standing;
    }
    if kept.len() >= STANDING_MAX {
        return None;
    }
    let standing = make(Box::leak(policy.into())).map(|standing| &*Box::leak(Box::new(standing)));
    *kept.entry(key).or_insert(standing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::HeaderStyle;
    use crate::head::Head;
    use crate::refusal;
    use proptest::prelude::*;
    use tidegate::{Decision, Retry, Span};

    fn decision(remaining: u64, reset_us: u64) -> Decision {
        let mut decision = Decision::UNLIMITED;
        (decision.limit, decision.remaining) = (20, remaining);
        decision.reset_after = Span::from_micros(reset_us);
        decision
    }

    proptest! {
        #[test]
        fn it_says_what_the_style_says(
            name in "[ -~\u{e9}]{0,30}", remaining in any::<u64>(), reset_us in any::<u64>(),
        ) {
            let rule: Rule = "100/s burst 20".parse().unwrap();
            let answer = Answer::obeyed(decision(remaining, reset_us));
            let told = Told { name: &name, rule: &rule, answer };
            let (mut quick, mut styled) = (HeaderMap::new(), HeaderMap::new());
            HeaderStyle::Draft11.write(&mut styled, &[told], &told.answer);
            if let Some(standing) = Standing::of(&name, &rule) {
                standing.say(&told).add(&mut quick);
                prop_assert_eq!(quick, styled);
            } else {
                prop_assert!(name.len() * 3 + 5 > START_BYTES, "a byte is three characters at the most");
            }
        }

        #[test]
        fn a_denial_is_the_one_that_is_written_the_long_way(
            name in "[\u{0}-~\u{e9}]{0,5}", reset_us in any::<u64>(), status in 400_u16..600,
            retry in prop_oneof![
                any::<u64>().prop_map(|us| Retry::After(Span::from_micros(us))),
                Just(Retry::OnRelease),
                Just(Retry::Never),
            ],
        ) {
            let rule: Rule = "100/s burst 20".parse().unwrap();
            let answer = Answer::obeyed(decision(0, reset_us).deny(retry).decision);
            let (told, status) =
                (Told { name: &name, rule: &rule, answer }, StatusCode::from_u16(status).unwrap());
            let quick = Standing::of(&name, &rule).unwrap().say(&told).refusal(status, &answer);
            let request = http::Request::new(());
            let mut long = refusal::denied(&Head::of(&request), status, &[told], answer.decision);
            HeaderStyle::Draft11.write(long.headers_mut(), &[told], &answer);
            prop_assert_eq!(quick.status(), long.status());
            prop_assert_eq!(quick.headers(), long.headers());
            prop_assert_eq!(quick.body(), long.body());
        }
    }

    #[test]
    fn no_more_are_kept_than_may_be() {
        let mut kept = Kept::new();
        let make = |_: &'static str| None;
        for number in 0..=STANDING_MAX {
            keep(&mut kept, &number.to_string(), "policy", make);
        }
        assert_eq!(kept.len(), STANDING_MAX);
        let never = |_: &'static str| panic!("there is no room for it");
        assert!(keep(&mut kept, &STANDING_MAX.to_string(), "policy", never).is_none());
        keep(&mut kept, "0", "policy", never);
    }

    #[test]
    fn what_stands_is_kept_once() {
        let of = |name, rule: &str| Standing::of(name, &rule.parse().unwrap()).unwrap();
        let kept = of("kept once", "7/s");
        assert!(std::ptr::eq(kept, of("kept once", "7/s")));
        assert!(!std::ptr::eq(kept, of("kept once", "8/s")));
        let (one, other) = (of("\u{e9}", "7/s"), of("%C3%A9", "7/s"));
        assert_eq!(one.policy, other.policy);
        assert!(!std::ptr::eq(one, other), "a problem tells them apart");
    }
}
