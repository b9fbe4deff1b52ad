//! What a limit that is alone says, as far as it is the same in every answer: the shortest way to say it.
//!
//! Always   It says what [`HeaderStyle::Draft11`](super::HeaderStyle) says, and what
//!          [`put_denial`](super::put_denial) does.
//! Bound    What stands is kept for ever, once for each rule with a name, so that answers refer to it without a count of who
//!          does, which all cores would have to agree on. There are at most [`STANDING_MAX`]; who comes later has no
//!          quick way.

use super::fields::{POLICY, RATE_LIMIT, policy};
use super::form::{BLANK, Form};
use super::recent::{Recent, Says};
use super::start::{Line, Numbers, Start};
use super::{Answer, Told};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::thread::LocalKey;
use tidegate::{Decision, Rule, Timestamp};

/// So many are kept: more than a program has limits, unless it makes new ones for ever.
const STANDING_MAX: usize = 1_024;

/// There is one of each kind, so it is the same as another if it lies where the other does.
#[derive(Debug)]
pub(crate) struct Standing {
    policy: HeaderValue,
    /// Both fields of an answer that has no others yet, the one for what is left first and blank. To copy a map is cheaper
    /// than to make one, which hashes every name.
    alone: HeaderMap,
    /// What clients at rest are told: the numbers of a first request, and both fields with these. Rules that have one policy
    /// may differ in them; then it is what the first of these rules says.
    first: (Numbers, HeaderMap),
    start: Start,
    form: Form,
}

/// What is told in an answer: the numbers, and what stands around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    standing: &'static Standing,
    numbers: Numbers,
}

impl Standing {
    /// `None` if there is no quick way: the name is too long for it, or there are too many.
    pub(crate) fn of(name: &str, rule: &Rule) -> Option<&'static Self> {
        let start = Start::of(name)?;
        let (limit, now) = (rule.limit(), Timestamp::EPOCH);
        let untouched = limit.peek(&limit.fresh(now), now, 0);
        let first = Numbers::of(&limit.peek(&limit.fresh(now), now, 1));
        let mut text = Vec::new();
        policy(&mut text, &Told { name, rule, answer: Answer::obeyed(untouched) });
        let text = String::from_utf8(text).ok()?;
        kept(name, &text, |text| {
            let policy = HeaderValue::from_static(text);
            let form = Form::new(name, policy.clone())?;
            let fields = [(RATE_LIMIT, BLANK), (POLICY, policy.clone())];
            let alone: HeaderMap = fields.into_iter().collect();
            // A map does not promise to go through its fields in the order they were put in.
            if alone.values().next() != Some(&BLANK) {
                return None;
            }
            let mut fields = alone.clone();
            fields.insert(RATE_LIMIT, start.static_value(first));
            Some(Self { policy, alone, first: (first, fields), start, form })
        })
    }

    #[inline]
    pub(crate) fn say(&'static self, decision: &Decision) -> Said {
        Said { standing: self, numbers: Numbers::of(decision) }
    }
}

impl Said {
    /// Adds the fields.
    pub(crate) fn add(&self, headers: &mut HeaderMap) {
        if headers.capacity() > 0 {
            return self.append(headers);
        }
        let (first, first_fields) = &self.standing.first;
        let is_first = self.numbers == *first;
        let fields = if is_first { first_fields } else { &self.standing.alone }.clone();
        // A map without capacity has nothing to be freed, and to find that out once more takes 60 instructions.
        debug_assert!(headers.is_empty(), "it has no capacity");
        std::mem::forget(std::mem::replace(headers, fields));
        if !is_first && let Some(blank) = headers.values_mut().next() {
            *blank = self.value();
        }
    }

    /// The value, from the line that this thread has written last if it says the same. It is copied: to share a value takes
    /// two instructions that no later one can overtake. Measured, that is quicker where names are hashed (105 for 112 to 127
    /// ns), and slower where a map is copied (107 to 110 for 104 to 107).
    #[inline]
    fn copied(&self) -> HeaderValue {
        thread_local! {
            static LAST: RefCell<(Option<Said>, Line)> = const { RefCell::new((None, Line::EMPTY)) };
        }
        let copied = LAST.try_with(|last| {
            let (says, line) = &mut *last.borrow_mut();
            if *says != Some(*self) {
                self.standing.start.put(line, self.numbers);
                *says = Some(*self);
            }
            line.value()
        });
        // A thread that ends has no line any more.
        copied.unwrap_or_else(|_| self.written())
    }

    #[inline(never)]
    fn append(&self, headers: &mut HeaderMap) {
        headers.append(RATE_LIMIT, self.copied());
        headers.append(POLICY, self.standing.policy.clone());
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
        self.numbers.remaining.wrapping_add(self.numbers.window_s)
    }

    #[inline]
    fn written(self) -> HeaderValue {
        self.standing.start.value(self.numbers)
    }
}

impl PartialEq for Standing {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Standing {}

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
    use crate::answer::start::START_BYTES;
    use crate::head::Head;
    use crate::refusal;
    use proptest::prelude::*;
    use tidegate::{Retry, Span};

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
            let Some(standing) = Standing::of(&name, &rule) else {
                prop_assert!(name.len() * 3 + 5 > START_BYTES, "a byte is three characters at the most");
                return Ok(());
            };
            let typed: HeaderMap = [(http::header::CONTENT_TYPE, BLANK)].into_iter().collect();
            // The second time it has been said already, and after others it has not.
            for before in [HeaderMap::new(), typed.clone(), typed] {
                let (mut quick, mut styled) = (before.clone(), before);
                HeaderStyle::Draft11.write(&mut styled, &[told], &told.answer);
                standing.say(&told.answer.decision).add(&mut quick);
                prop_assert_eq!(quick, styled);
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
            let quick = Standing::of(&name, &rule).unwrap().say(&answer.decision).refusal(status, &answer);
            let request = http::Request::new(());
            let mut long = refusal::denied(&Head::of(&request), status, &[told], answer.decision);
            HeaderStyle::Draft11.write(long.headers_mut(), &[told], &answer);
            prop_assert_eq!(quick.status(), long.status());
            prop_assert_eq!(quick.headers(), long.headers());
            prop_assert_eq!(quick.body(), long.body());
        }
    }

    #[test]
    fn a_first_request_is_told_what_the_style_says() {
        for rule in ["100/s burst 20", "1/h", "5/min fixed"] {
            let rule: Rule = rule.parse().unwrap();
            let (limit, now) = (rule.limit(), Timestamp::EPOCH);
            let answer = Answer::obeyed(limit.peek(&limit.fresh(now), now, 1));
            let told = Told { name: "first", rule: &rule, answer };
            let standing = Standing::of("first", &rule).unwrap();
            let said = standing.say(&answer.decision);
            assert_eq!(said.numbers, standing.first.0, "{rule}");
            let (mut quick, mut styled) = (HeaderMap::new(), HeaderMap::new());
            said.add(&mut quick);
            HeaderStyle::Draft11.write(&mut styled, &[told], &answer);
            assert_eq!(quick, styled, "{rule}");
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
