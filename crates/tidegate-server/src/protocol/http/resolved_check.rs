//! A check whose limit has been found.

use super::base64;
use super::check_body::CheckBody;
use super::problem::Problem;
use crate::engine::{self, ClientEngine, Limit, NoSuchLimit};
use std::borrow::Cow;
use std::sync::Arc;

/// Maximum length of a key.
pub(crate) const KEY_BYTES_MAX: usize = 4_096;

/// The limit, key and cost of a check.
#[derive(Debug)]
pub(super) struct ResolvedCheck<'a> {
    pub(super) limit: Arc<Limit>,
    pub(super) key: Cow<'a, [u8]>,
    pub(super) cost: u64,
}

impl<'a> CheckBody<'a> {
    /// Finds the limit and decodes the key.
    pub(super) fn resolve(self, engine: ClientEngine<'_>) -> Result<ResolvedCheck<'a>, Problem> {
        let key = key(self.key, self.key_base64)?;
        let limit = match (&self.limit, &self.rule) {
            (Some(name), None) => engine.find(name)?,
            (None, Some(rule)) => engine.find(rule).map_err(|error| match error {
                NoSuchLimit::Neither { name, error, .. } => Problem::no_rule(&name, &error),
                other => other.into(),
            })?,
            (None, None) => {
                return Err(Problem::bad(
                    "`limit` is missing: a limit's name, or a rule like `10/s`",
                ));
            }
            (Some(_), Some(_)) => return Err(Problem::bad("send `limit` or `rule`, not both")),
        };
        Ok(ResolvedCheck { limit, key, cost: self.cost.unwrap_or(1) })
    }
}

impl ResolvedCheck<'_> {
    pub(super) fn request(&self) -> engine::LimitRequest<'_> {
        engine::LimitRequest { limit: &self.limit, key: &self.key, cost: self.cost }
    }
}

fn key<'a>(
    text: Option<Cow<'a, str>>,
    base64: Option<Cow<'a, str>>,
) -> Result<Cow<'a, [u8]>, Problem> {
    let key = match (text, base64) {
        (Some(Cow::Borrowed(text)), None) => Cow::Borrowed(text.as_bytes()),
        (Some(Cow::Owned(text)), None) => Cow::Owned(text.into_bytes()),
        (None, Some(text)) => Cow::Owned(base64::decode(&text).ok_or_else(|| {
            Problem::bad("`key_base64` is not base64 (RFC 4648, the alphabet with + and /)")
        })?),
        (None, None) => {
            return Err(Problem::bad(
                "`key` is missing: the user, address or other entity to limit",
            ));
        }
        (Some(_), Some(_)) => return Err(Problem::bad("send `key` or `key_base64`, not both")),
    };
    bounded(key)
}

/// Returns the key, or a problem if it is too long.
pub(super) fn bounded(key: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>, Problem> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(key);
    }
    Err(Problem::bad(format!(
        "a key has at most {KEY_BYTES_MAX} bytes, this one has {}: send a digest of it",
        key.len()
    )))
}
