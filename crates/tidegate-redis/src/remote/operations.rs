//! The operations on a key, each one script: charge, peek, refund, release, reset.

use super::rule_registry::RegistryRequest;
use super::{ATTEMPTS_MAX, RemoteLimit};
use crate::connection::{Deadline, RedisStoreError};
use crate::script;
use crate::script::codec::{Operation, ScriptDecision, ScriptReply, bytes};
use crate::script::key_name;
use redis::Value;
use tidegate::Decision;
use tidegate::rule::Window;
use tidegate::store::{IDEMPOTENCY_WINDOW, IdempotencyKey};
use tidegate_core::{Span, Timestamp};

/// A decision by Redis, and the script's answer from which it was computed.
#[derive(Debug)]
pub(crate) struct RemoteDecision {
    pub(crate) decision: Decision,
    pub(crate) answer: ScriptDecision,
    /// The version of the rule.
    pub(crate) version: u64,
    /// Whether it is the stored answer to an earlier request with the same id.
    pub(crate) is_repeated: bool,
}

impl RemoteLimit {
    /// Decides, and charges unless it denies.
    pub(crate) async fn charge(
        &self,
        subject: &[u8],
        cost: u64,
        id: Option<IdempotencyKey<'_>>,
    ) -> Result<RemoteDecision, RedisStoreError> {
        self.run(subject, Operation::Charge, cost, id).await
    }

    pub(crate) async fn run(
        &self,
        subject: &[u8],
        operation: Operation,
        cost: u64,
        id: Option<IdempotencyKey<'_>>,
    ) -> Result<RemoteDecision, RedisStoreError> {
        self.run_within(self.start_deadline(), subject, operation, cost, id).await
    }

    /// Runs an operation of a request whose deadline has started already.
    pub(crate) async fn run_within(
        &self,
        deadline: Deadline,
        subject: &[u8],
        operation: Operation,
        cost: u64,
        id: Option<IdempotencyKey<'_>>,
    ) -> Result<RemoteDecision, RedisStoreError> {
        let key = self.key(subject);
        let mut around = self.runner.clock.estimate();
        for _ in 0..ATTEMPTS_MAX {
            let current = self.current_rule(deadline).await?;
            let codec = &current.codec;
            let mut keys = vec![key.clone()];
            let (script, args) = match id.filter(|_| cost > 0 && codec.is_sendable(cost)) {
                Some(id) => {
                    keys.push(key_name::idempotency(&key, cost, id.as_str()));
                    let args = codec.args(operation, cost, around);
                    let is_charge = operation == Operation::Charge;
                    let kept = if is_charge { IDEMPOTENCY_WINDOW } else { Span::ZERO };
                    let kept_ms = (kept.as_micros() / 1_000).to_string();
                    (codec.script(), vec![args, codec.fresh().to_vec(), kept_ms.into()])
                }
                None => codec.call(operation, cost, around),
            };
            let has_id = keys.len() > 1;
            let mut value = self.runner.run(script, keys, args, deadline).await?;
            let (mut version, mut before, mut is_repeated) = (current.version, None, false);
            if has_id {
                (version, value, is_repeated) = read_idempotent(value).ok_or_else(|| {
                    self.malformed("no answer to a request with an id".to_owned())
                })?;
            }
            if version > current.version {
                self.update_rule(deadline, RegistryRequest::Read).await?;
                continue;
            }
            if version < current.version {
                // A stored answer under an older rule is repeated as it was.
                before = current.codec_before(version);
            }
            let codec = before.as_ref().unwrap_or(codec);
            match codec.read(&value).map_err(|malformed| self.unexpected(&malformed))? {
                ScriptReply::Decision(answer) => {
                    // A stored answer is always that to a charge.
                    let operation = if is_repeated { Operation::Charge } else { operation };
                    let decision = codec.decision(&answer, operation, cost);
                    let decision = decision.map_err(|malformed| self.unexpected(&malformed))?;
                    return Ok(RemoteDecision { decision, answer, version, is_repeated });
                }
                ScriptReply::OtherTime(now) => {
                    self.runner.clock.synchronize(now);
                    around = now;
                }
                ScriptReply::OtherVersion(value) => {
                    self.reconcile(deadline, &key, &value, &current).await?;
                }
            }
        }
        Err(self.changes_too_often())
    }

    /// Returns the current window of a key, by Redis's clock.
    pub(crate) async fn window(&self, subject: &[u8]) -> Result<Option<Window>, RedisStoreError> {
        let deadline = self.start_deadline();
        for _ in 0..ATTEMPTS_MAX {
            let seen = self.run_within(deadline, subject, Operation::Peek, 0, None).await?;
            let Some(current) = self.loaded_rule().filter(|it| it.version == seen.version) else {
                // The rule changed after the answer.
                continue;
            };
            let state = current.codec.state(&seen.answer);
            let state = state.map_err(|malformed| self.unexpected(&malformed))?;
            return Ok(current.codec.limit().window(&state, seen.answer.now()));
        }
        Err(self.changes_too_often())
    }

    /// Returns the command that a decision sends, for benches.
    pub(crate) async fn command(
        &self,
        subject: &[u8],
        cost: u64,
    ) -> Result<Vec<Vec<u8>>, RedisStoreError> {
        let current = self.current_rule(self.start_deadline()).await?;
        let around = self.runner.clock.estimate();
        let (script, args) = current.codec.call(Operation::Charge, cost, around);
        let hash = script.hash().as_bytes().to_vec();
        let words = [b"EVALSHA".to_vec(), hash, b"1".to_vec(), self.key(subject)];
        Ok([&words[..], &args].concat())
    }

    /// Releases a permit. Returns whether it was held.
    pub(crate) async fn release(
        &self,
        subject: &[u8],
        (ticket, since): (u64, Timestamp),
    ) -> Result<bool, RedisStoreError> {
        let (key, deadline) = (self.key(subject), self.start_deadline());
        for _ in 0..ATTEMPTS_MAX {
            let current = self.current_rule(deadline).await?;
            if !current.rule.is_concurrency() {
                // The new rule has no permits.
                return Ok(false);
            }
            #[expect(clippy::cast_precision_loss, reason = "they were received as doubles")]
            let numbers = [current.version, ticket, since.as_micros()].map(|number| number as f64);
            let args = vec![bytes(&numbers)];
            let keys = vec![key.clone()];
            match self.runner.run(&script::RELEASE, keys, args, deadline).await? {
                Value::Int(held) => return Ok(held == 1),
                Value::BulkString(value) => {
                    self.reconcile(deadline, &key, &value, &current).await?;
                }
                other => return Err(self.malformed(format!("{other:?} for a permit"))),
            }
        }
        Ok(false)
    }

    /// Deletes the state of a key.
    pub(crate) async fn reset(&self, subject: &[u8]) -> Result<(), RedisStoreError> {
        let keys = vec![self.key(subject)];
        self.runner.run(&script::FORGET, keys, Vec::new(), self.start_deadline()).await.map(drop)
    }
}

/// Reads the answer to a request with an id: the version of the rule, the reply, and whether it is a stored one.
fn read_idempotent(value: Value) -> Option<(u64, Value, bool)> {
    let Value::Array(mut parts) = value else { return None };
    let is_repeated = parts.len() == 3 && parts.pop() == Some(Value::Int(1));
    let [Value::Int(version), reply] = <[Value; 2]>::try_from(parts).ok()? else { return None };
    Some((u64::try_from(version).ok()?, reply, is_repeated))
}
