//! Encodes requests for leases, and decodes the replies of `lend.lua`.

use super::balance::{ClosedLease, LeaseRequest, Micros};
use super::{LEASE_TIME, VersionedDecision};
use crate::connection::RedisStoreError;
use crate::remote::{ATTEMPTS_MAX, RemoteLimit};
use crate::script::Twin;
use crate::script::codec::{Operation, ScriptReply, bytes};
use crate::script::key_name;
use redis::Value;
use tidegate::Decision;
use tidegate_core::Span;

/// The terms of a request for a lease.
#[derive(Debug)]
pub(super) struct LendTerms {
    pub(super) number: u64,
    /// The smallest useful lease; 0 to only return others.
    pub(super) at_least: u64,
}

/// The reply to a request for a lease.
#[derive(Debug)]
pub(super) struct LendReply {
    pub(super) amount: u64,
    pub(super) lasts: Micros,
    /// The decision about `at_least`, if nothing was granted.
    pub(super) decision: Decision,
    pub(super) answer: Option<VersionedDecision>,
}

impl RemoteLimit {
    /// Returns leases, and requests another.
    pub(super) async fn lend(
        &self,
        subject: &[u8],
        terms: &LendTerms,
        request: &LeaseRequest,
    ) -> Result<LendReply, RedisStoreError> {
        let key = self.key(subject);
        let leases = key_name::leases(&key);
        let mut around = self.runner().clock.estimate();
        let deadline = self.start_deadline();
        // Leases are returned in the first attempt only.
        let mut closed = request.closed.as_slice();
        for _ in 0..ATTEMPTS_MAX {
            let current = self.current_rule(deadline).await?;
            let codec = &current.codec;
            let (sizes, most, is_windowed) = match &current.lending {
                Some(lending) => (
                    sizes(request.size, terms.at_least),
                    lending.leased_max,
                    lending.ends_with_window,
                ),
                None => (Vec::new(), 0, false),
            };
            let args = |operation, cost| codec.args(operation, cost, around);
            let header = [
                most,
                u64::from(is_windowed),
                terms.number,
                closed.len() as u64,
                sizes.len() as u64,
            ];
            let mut sent_args = vec![packed(header), codec.fresh().to_vec()];
            for closed in closed {
                sent_args.push(member(closed));
                let refund = (closed.unused > 0).then(|| args(Operation::Refund, closed.unused));
                sent_args.push(refund.unwrap_or_default());
            }
            for size in &sizes {
                sent_args.push(size.to_string().into_bytes());
                sent_args.push(args(Operation::Charge, *size));
                sent_args.push(args(Operation::Charge, size.saturating_mul(2)));
            }
            let keys = vec![key.clone(), leases.clone()];
            let script = Twin::of(codec.stem()).expect("every algorithm has a twin").lend();
            let reply = self.runner().run(script, keys, sent_args, deadline).await?;
            let (amount, lasts, reply) =
                read(&reply).ok_or_else(|| self.malformed(format!("{reply:?}")))?;
            closed = &[];
            if reply == Value::BulkString(Vec::new()) {
                return Ok(LendReply {
                    amount,
                    lasts,
                    decision: Decision::UNLIMITED,
                    answer: None,
                });
            }
            match codec.read(&reply).map_err(|malformed| self.unexpected(&malformed))? {
                ScriptReply::Decision(answer) => {
                    let at_least = sizes.last().copied().unwrap_or(0);
                    let decision = codec.decision(&answer, Operation::Peek, at_least);
                    let decision = decision.map_err(|malformed| self.unexpected(&malformed))?;
                    let answer =
                        Some(VersionedDecision { decision: answer, version: current.version });
                    return Ok(LendReply { amount, lasts, decision, answer });
                }
                ScriptReply::OtherTime(now) => {
                    self.runner().clock.synchronize(now);
                    around = now;
                }
                ScriptReply::OtherVersion(value) => {
                    self.reconcile(deadline, &key, &value, &current).await?;
                }
            }
        }
        Err(self.changes_too_often())
    }
}

/// Returns the sizes to try: from the largest, half each time, down to the smallest useful one.
pub(super) fn sizes(most: u64, least: u64) -> Vec<u64> {
    let mut sizes = Vec::new();
    let mut size = most;
    while size > least {
        sizes.push(size);
        size /= 2;
    }
    if least > 0 {
        sizes.push(least);
    }
    sizes
}

#[expect(clippy::cast_precision_loss, reason = "none of them is above 2^53")]
fn packed([most, is_windowed, number, closed, sizes]: [u64; 5]) -> Vec<u8> {
    let lasts = Span::from(LEASE_TIME).as_micros();
    bytes(&[most, lasts, is_windowed, number, closed, sizes].map(|number| number as f64))
}

#[expect(clippy::cast_precision_loss, reason = "none of them is above 2^53")]
fn member(closed: &ClosedLease) -> Vec<u8> {
    bytes(&[closed.number as f64, closed.amount as f64])
}

fn read(reply: &Value) -> Option<(u64, Micros, Value)> {
    let Value::Array(parts) = reply else { return None };
    let [Value::Int(amount), Value::Int(lasts), decision] = parts.as_slice() else { return None };
    Some((u64::try_from(*amount).ok()?, u64::try_from(*lasts).ok()?, decision.clone()))
}
