//! Parses the JSON body of a check without copying it.
//!
//! Invariant An unknown member is an error with its position and perhaps a suggestion: a mistyped `cost` must not count as 1.

use super::problem::Problem;
use crate::config::near;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// Maximum number of checks in one body.
pub(crate) const CHECKS_MAX: usize = 64;

/// Maximum length of a member's name for which a suggestion is searched.
const MEMBER_BYTES_MAX: usize = 64;

type Members = &'static [&'static str];

/// The members of one check.
pub(super) const CHECK: Members = &["limit", "rule", "key", "key_base64", "cost"];
/// The members of `/v1/check`: one check with an id, or several in `checks`.
pub(super) const CHECK_OR_CHECKS: Members =
    &["limit", "rule", "key", "key_base64", "cost", "id", "checks"];
/// The members of a request without a cost.
pub(super) const WITHOUT_COST: Members = &["limit", "rule", "key", "key_base64"];
/// The members of a release.
pub(super) const RELEASE: Members = &["lease"];

/// The members of a body.
#[derive(Debug, Default)]
pub(super) struct CheckBody<'a> {
    pub(super) limit: Option<Cow<'a, str>>,
    pub(super) rule: Option<Cow<'a, str>>,
    pub(super) key: Option<Cow<'a, str>>,
    pub(super) key_base64: Option<Cow<'a, str>>,
    pub(super) cost: Option<u64>,
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) lease: Option<Cow<'a, str>>,
    pub(super) checks: Option<Vec<CheckBody<'a>>>,
}

/// Parses a body that may have these members.
pub(super) fn parse(body: &[u8], members: Members) -> Result<CheckBody<'_>, Problem> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let parsed = BodyWith(members).deserialize(&mut json).and_then(|parsed| {
        json.end()?;
        Ok(parsed)
    });
    parsed.map_err(|error| Problem::bad(format!("the body cannot be read: {error}")))
}

impl CheckBody<'_> {
    /// Returns whether the body has a member of a check beside `checks`.
    pub(super) fn has_check_members(&self) -> bool {
        let texts = [&self.limit, &self.rule, &self.key, &self.key_base64];
        self.cost.is_some() || texts.iter().any(|text| text.is_some())
    }
}

struct BodyWith(Members);

impl<'de> DeserializeSeed<'de> for BodyWith {
    type Value = CheckBody<'de>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<CheckBody<'de>, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for BodyWith {
    type Value = CheckBody<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with {}", self.0.join(", "))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CheckBody<'de>, A::Error> {
        let mut body = CheckBody::default();
        while let Some(Text(member)) = map.next_key()? {
            if !self.0.contains(&&*member) {
                return Err(unknown(&member, self.0));
            }
            let text = match &*member {
                "limit" => &mut body.limit,
                "rule" => &mut body.rule,
                "key" => &mut body.key,
                "key_base64" => &mut body.key_base64,
                "lease" => &mut body.lease,
                "id" => &mut body.id,
                "cost" => {
                    set(&mut body.cost, &member, map.next_value::<Cost>()?.0)?;
                    continue;
                }
                _ => {
                    set(&mut body.checks, &member, map.next_value_seed(Checks)?)?;
                    continue;
                }
            };
            set(text, &member, map.next_value::<Text<'de>>()?.0)?;
        }
        Ok(body)
    }
}

fn unknown<E: de::Error>(member: &str, members: Members) -> E {
    // Searching a suggestion for a very long name would take long and find none.
    if member.len() > MEMBER_BYTES_MAX {
        return E::custom(format!("unknown member; there are {}", members.join(", ")));
    }
    match near(member, members.iter().copied()) {
        Some(near) => E::custom(format!("unknown member `{member}`; did you mean `{near}`?")),
        None => E::custom(format!("unknown member `{member}`; there are {}", members.join(", "))),
    }
}

/// Sets a member, which may be there once.
fn set<T, E: de::Error>(member: &mut Option<T>, name: &str, value: T) -> Result<(), E> {
    match member.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::custom(format!("`{name}` is there twice"))),
    }
}

/// The value of `checks`.
struct Checks;

impl<'de> DeserializeSeed<'de> for Checks {
    type Value = Vec<CheckBody<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Checks {
    type Value = Vec<CheckBody<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of 1 to {CHECKS_MAX} checks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut checks = Vec::new();
        while let Some(check) = array.next_element_seed(BodyWith(CHECK))? {
            if checks.len() == CHECKS_MAX {
                return Err(de::Error::invalid_length(CHECKS_MAX + 1, &self));
            }
            checks.push(check);
        }
        if checks.is_empty() {
            return Err(de::Error::invalid_length(0, &self));
        }
        Ok(checks)
    }
}

/// A string, borrowed unless it contains escapes.
struct Text<'a>(Cow<'a, str>);

impl<'de> de::Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        json.deserialize_str(Reader)
    }
}

/// A cost. Its error names the range of costs.
struct Cost(u64);

impl<'de> de::Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Cost;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from 0 to {}", u64::MAX)
            }

            fn visit_u64<E>(self, cost: u64) -> Result<Cost, E> {
                Ok(Cost(cost))
            }

            /// `2.0` is a whole number too: JSON has one kind of number, and some languages write integers like this.
            fn visit_f64<E: de::Error>(self, cost: f64) -> Result<Cost, E> {
                whole(cost)
                    .map(Cost)
                    .ok_or_else(|| E::invalid_type(de::Unexpected::Float(cost), &self))
            }
        }
        json.deserialize_u64(Reader)
    }
}

/// Larger numbers may have been rounded by the client.
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is whole, and from 0 to 2^53"
)]
fn whole(number: f64) -> Option<u64> {
    let is_whole = number.fract() == 0.0 && (0.0..=WHOLE_MAX).contains(&number);
    is_whole.then_some(number as u64)
}
