//! What a body says, read without copying it.
//!
//! Always   A member that nobody knows is an error that says where it stands and what was perhaps meant: a
//!          mistyped `cost` must not cost 1.

use super::problem::Problem;
use crate::config::near;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// So many questions may be one.
pub(crate) const CHECKS_MAX: usize = 64;

/// No member's name is longer than this.
const MEMBER_BYTES_MAX: usize = 64;

type Members = &'static [&'static str];

/// The members of a question.
pub(super) const ONE: Members = &["limit", "rule", "key", "key_base64", "cost"];
/// The same with an id, or several questions in `checks`.
pub(super) const SEVERAL: Members = &["limit", "rule", "key", "key_base64", "cost", "id", "checks"];
/// The members of a question without a cost.
pub(super) const FREE: Members = &["limit", "rule", "key", "key_base64"];
/// What is given back.
pub(super) const LEASE: Members = &["lease"];

/// The members that a body has, as they are.
#[derive(Debug, Default)]
pub(super) struct Said<'a> {
    pub(super) limit: Option<Cow<'a, str>>,
    pub(super) rule: Option<Cow<'a, str>>,
    pub(super) key: Option<Cow<'a, str>>,
    pub(super) key_base64: Option<Cow<'a, str>>,
    pub(super) cost: Option<u64>,
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) lease: Option<Cow<'a, str>>,
    pub(super) checks: Option<Vec<Said<'a>>>,
}

/// Reads a body that may have these members.
pub(super) fn read(body: &[u8], members: Members) -> Result<Said<'_>, Problem> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let said = SaidWith(members).deserialize(&mut json).and_then(|said| {
        json.end()?;
        Ok(said)
    });
    said.map_err(|error| Problem::bad(format!("the body cannot be read: {error}")))
}

impl Said<'_> {
    /// Whether it says anything besides `checks`.
    pub(super) fn is_question(&self) -> bool {
        let texts = [&self.limit, &self.rule, &self.key, &self.key_base64];
        self.cost.is_some() || texts.iter().any(|text| text.is_some())
    }
}

struct SaidWith(Members);

impl<'de> DeserializeSeed<'de> for SaidWith {
    type Value = Said<'de>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Said<'de>, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for SaidWith {
    type Value = Said<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with {}", self.0.join(", "))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Said<'de>, A::Error> {
        let mut said = Said::default();
        while let Some(Text(member)) = map.next_key()? {
            if !self.0.contains(&&*member) {
                return Err(unknown(&member, self.0));
            }
            match &*member {
                "limit" => once(&mut said.limit, &member, map.next_value::<Text<'de>>()?.0)?,
                "rule" => once(&mut said.rule, &member, map.next_value::<Text<'de>>()?.0)?,
                "key" => once(&mut said.key, &member, map.next_value::<Text<'de>>()?.0)?,
                "key_base64" => {
                    once(&mut said.key_base64, &member, map.next_value::<Text<'de>>()?.0)?;
                }
                "lease" => once(&mut said.lease, &member, map.next_value::<Text<'de>>()?.0)?,
                "id" => once(&mut said.id, &member, map.next_value::<Text<'de>>()?.0)?,
                "cost" => once(&mut said.cost, &member, map.next_value::<Cost>()?.0)?,
                _ => once(&mut said.checks, &member, map.next_value_seed(Checks)?)?,
            }
        }
        Ok(said)
    }
}

fn unknown<E: de::Error>(member: &str, members: Members) -> E {
    // What is very long resembles nothing, and finding that out takes long.
    if member.len() > MEMBER_BYTES_MAX {
        return E::custom(format!("unknown member; there are {}", members.join(", ")));
    }
    match near(member, members.iter().copied()) {
        Some(near) => E::custom(format!("unknown member `{member}`; did you mean `{near}`?")),
        None => E::custom(format!("unknown member `{member}`; there are {}", members.join(", "))),
    }
}

fn once<T, E: de::Error>(place: &mut Option<T>, member: &str, value: T) -> Result<(), E> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::custom(format!("`{member}` is there twice"))),
    }
}

/// Several questions, none of which has several.
struct Checks;

impl<'de> DeserializeSeed<'de> for Checks {
    type Value = Vec<Said<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Checks {
    type Value = Vec<Said<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of 1 to {CHECKS_MAX} checks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut checks = Vec::new();
        while let Some(said) = array.next_element_seed(SaidWith(ONE))? {
            if checks.len() == CHECKS_MAX {
                return Err(de::Error::invalid_length(CHECKS_MAX + 1, &self));
            }
            checks.push(said);
        }
        if checks.is_empty() {
            return Err(de::Error::invalid_length(0, &self));
        }
        Ok(checks)
    }
}

/// A text, borrowed where nothing in it is escaped.
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

/// A cost, which is refused in words when it is none.
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

            /// `2.0` is a whole number too: JSON has one kind of numbers, and some languages write so.
            fn visit_f64<E: de::Error>(self, cost: f64) -> Result<Cost, E> {
                whole(cost)
                    .map(Cost)
                    .ok_or_else(|| E::invalid_type(de::Unexpected::Float(cost), &self))
            }
        }
        json.deserialize_u64(Reader)
    }
}

/// Larger ones may have been rounded on their way here.
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
