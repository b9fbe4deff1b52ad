//! What happens to a request of a [`LimitSet`] once it is decided.

use super::checks::NoKey;
use super::decisions::JointDecision;
use super::limit_set::LimitSet;
use super::settlement::Settlement;
use crate::admission;
use crate::head::Head;
use crate::response::body::LimitedBody;
use bytes::Bytes;
use http::Response;
use tidegate::{Clock, Denied};
use tidegate_http::PreparedFields;

/// What is left to do when there is a response.
pub struct AfterAdmission<C: Clock> {
    /// With the rules and the numbers at the time of the decision.
    pub(super) fields: PreparedFields,
    pub(super) settlement: Option<Settlement<C>>,
}

impl<R, C: Clock> admission::AfterAdmission<R> for AfterAdmission<C> {
    /// Settles the costs, and adds the header fields to the response.
    fn complete<E>(self, result: Result<Response<R>, E>) -> Result<Response<LimitedBody<R>>, E> {
        let Self { fields, settlement } = self;
        let mut response = match result {
            Ok(response) => response,
            Err(error) => {
                if let Some(settlement) = settlement {
                    settlement.failed();
                }
                return Err(error);
            }
        };
        fields.add_to(response.headers_mut());
        let meter = settlement
            .and_then(|settlement| settlement.answered(response.status(), response.headers()));
        Ok(response.map(|body| match meter {
            Some(meter) => LimitedBody::guarded(body, meter),
            None => LimitedBody::of_service(body),
        }))
    }
}

/// Why a request is rejected.
pub enum Rejection {
    /// A limit has denied it.
    Denied(JointDecision),
    /// It has no key.
    NoKey(NoKey),
}

impl Rejection {
    pub(super) fn denial<C: Clock>(&self, set: &LimitSet<C>) -> Option<(Denied, PreparedFields)> {
        let Self::Denied(decisions) = self else { return None };
        let denied = decisions.joint.into_result().err()?;
        Some((denied, set.fields(decisions)))
    }

    pub(super) fn response<C: Clock>(&self, set: &LimitSet<C>, head: &Head<'_>) -> Response<Bytes> {
        let decisions = match self {
            Self::Denied(decisions) => decisions,
            Self::NoKey(NoKey { limit }) => {
                return set.policy.without_key(head, &set.limits[*limit]);
            }
        };
        let mut response = set.with_statuses(decisions, |statuses| {
            set.policy.denied(head, statuses, decisions.joint)
        });
        set.fields(decisions).add_to(response.headers_mut());
        response
    }
}
