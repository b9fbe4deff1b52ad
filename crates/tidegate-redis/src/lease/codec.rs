//! What is said to Redis when something is lent, and what it answers.

use super::balance::{Closed, Micros, Request};
use super::{Known, LASTS};
use crate::connection::StoreError;
use crate::remote::Exact;
use crate::script::Twin;
use crate::script::codec::{Said, Verb, bytes};
use crate::script::key_name;
use redis::Value;
use tidegate::Decision;
use tidegate_core::Span;

/// On what terms Redis is asked to lend.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) number: u64,
    /// Nothing, to only give back.
    pub(super) at_least: u64,
}

/// What Redis said to it.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) amount: u64,
    pub(super) lasts: Micros,
    /// Where nothing was lent: on what was asked for at least.
    pub(super) decision: Decision,
    pub(super) known: Option<Known>,
}

impl Exact {
    /// Gives back leases, and asks for another.
    pub(super) async fn lend(
        &self,
        subject: &[u8],
        terms: &Terms,
        request: &Request,
    ) -> Result<Told, StoreError> {
        let key = self.key(subject);
        let leases = key_name::leases(&key);
        let mut around = self.store().clock.about();
        let deadline = self.within();
        // What was given back is not given back again, should it take another round.
        let mut closed = request.closed.as_slice();
        for _ in 0..ROUNDS_MAX {
            let current = self.known(deadline).await?;
            let shared = &current.shared;
            let (sizes, most, is_windowed) = match &current.lending {
                Some(lending) => (
                    sizes(request.size, terms.at_least),
                    lending.leased_max,
                    lending.ends_with_window,
                ),
                None => (Vec::new(), 0, false),
            };
            let args = |verb, cost| shared.args(verb, cost, around);
            let header = [
                most,
                u64::from(is_windowed),
                terms.number,
                closed.len() as u64,
                sizes.len() as u64,
            ];
            let mut sent_args = vec![packed(header), shared.fresh().to_vec()];
            for closed in closed {
                sent_args.push(member(closed));
                sent_args.push(if closed.unused > 0 {
                    args(Verb::Refund, closed.unused)
                } else {
                    Vec::new()
                });
            }
            for size in &sizes {
                sent_args.push(size.to_string().into_bytes());
                sent_args.push(args(Verb::Take, *size));
                sent_args.push(args(Verb::Take, size.saturating_mul(2)));
            }
            let keys = vec![key.clone(), leases.clone()];
            let script = Twin::of(shared.stem()).expect("it has a twin").lends();
            let said = self.store().run(script, keys, sent_args, deadline).await?;
            let (amount, lasts, said) =
                read(&said).ok_or_else(|| self.malformed(format!("{said:?}")))?;
            closed = &[];
            if said == Value::BulkString(Vec::new()) {
                return Ok(Told { amount, lasts, decision: Decision::UNLIMITED, known: None });
            }
            match shared.read(&said).map_err(|strange| self.strange(&strange))? {
                Said::Answer(answer) => {
                    let at_least = sizes.last().copied().unwrap_or(0);
                    let decision = shared.decision(&answer, Verb::Look, at_least);
                    let decision = decision.map_err(|strange| self.strange(&strange))?;
                    let known = Some(Known { answer, version: current.version });
                    return Ok(Told { amount, lasts, decision, known });
                }
                Said::OtherTime(now) => {
                    self.store().clock.heard(now);
                    around = now;
                }
                Said::OtherVersion(value) => {
                    self.reconcile(deadline, &key, &value, &current).await?;
                }
            }
        }
        Err(self
            .malformed("a state of yet another version of the rule, again and again".to_owned()))
    }
}

/// Rules may change while somebody asks, and again; after so many times it is told so.
const ROUNDS_MAX: usize = 8;

/// Half of it each time, down to what is needed.
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
    let lasts = Span::from(LASTS).as_micros();
    bytes(&[most, lasts, is_windowed, number, closed, sizes].map(|number| number as f64))
}

#[expect(clippy::cast_precision_loss, reason = "none of them is above 2^53")]
fn member(closed: &Closed) -> Vec<u8> {
    bytes(&[closed.number as f64, closed.amount as f64])
}

fn read(said: &Value) -> Option<(u64, Micros, Value)> {
    let Value::Array(parts) = said else { return None };
    let [Value::Int(amount), Value::Int(lasts), said] = parts.as_slice() else { return None };
    Some((u64::try_from(*amount).ok()?, u64::try_from(*lasts).ok()?, said.clone()))
}
