//! The limit of a layer: asks for permits, and says what happens with and without one.

use crate::admission::{Admission, AdmissionControl, AfterAdmission};
use crate::head::{AddressSource, Head};
use crate::key::KeyBytes;
use crate::limit::{KeyRequired, Limit, LimitError, RequestKey};
use crate::response::body::{BodyGuard, LimitedBody};
use crate::response::jitter::Jitter;
use crate::response::policy::ResponsePolicy;
use bytes::Bytes;
use http::Response;
use http_body::Body;
use std::fmt;
use std::sync::Arc;
use tidegate::{Clock, Decision, Denied, Limiter, Permit, Retry, Span, Verdict};
use tidegate_http::{LimitStatus, PreparedFields, RETRY_ON_RELEASE};

/// The limit of a layer, and its settings.
#[derive(Clone)]
pub struct ConcurrencyLimit<C: Clock> {
    limit: Limit<C>,
    limiter: Limiter<C>,
    pub(super) policy: ResponsePolicy,
    pub(super) max_wait: Span,
    pub(super) jitter: Jitter,
}

/// The permit of an admitted request, and the header fields of its response. Both are empty for a request that the limit does
/// not count.
pub struct HeldPermit<C: Clock> {
    permit: Option<Permit<C>>,
    fields: PreparedFields,
}

impl<C: Clock> HeldPermit<C> {
    fn uncounted() -> Self {
        Self { permit: None, fields: PreparedFields::default() }
    }
}

/// Why a request is rejected.
pub enum Rejection {
    /// There is no free permit.
    Denied(Denied),
    /// The request has no key.
    NoKey,
}

impl<C: Clock> AdmissionControl for ConcurrencyLimit<C> {
    type AfterAdmission = HeldPermit<C>;
    type Rejection = Rejection;

    fn address_source(&self) -> &AddressSource {
        &self.policy.address_source
    }

    fn decide(self: &Arc<Self>, head: &Head<'_>) -> Admission<Self> {
        match self.limit.request_key(head) {
            Ok(RequestKey::Key(key)) => self.acquire(key, self.limit.cost_of(head)),
            Ok(RequestKey::Uncounted) => Admission::Admitted(HeldPermit::uncounted()),
            Err(KeyRequired) => Admission::Rejected(Rejection::NoKey),
            Ok(RequestKey::Pending(key)) => {
                let (shared, cost) = (Arc::clone(self), self.limit.cost_of(head));
                Admission::Pending(Box::pin(async move {
                    match shared.limit.awaited_key(key.await) {
                        Ok(Some(key)) => shared.acquire(key, cost),
                        Ok(None) => Admission::Admitted(HeldPermit::uncounted()),
                        Err(KeyRequired) => Admission::Rejected(Rejection::NoKey),
                    }
                }))
            }
        }
    }

    fn rejection(&self, head: &Head<'_>, why: &Rejection) -> Response<Bytes> {
        let denied = match why {
            Rejection::Denied(denied) => *denied,
            Rejection::NoKey => return self.policy.without_key(head, &self.limit),
        };
        let mut response = self.with_status(denied.decision, |status| {
            self.policy.denied(head, status, denied.decision)
        });
        self.denial_fields(denied).add_to(response.headers_mut());
        response
    }

    fn denial(&self, why: &Rejection) -> Option<(Denied, PreparedFields)> {
        match why {
            Rejection::Denied(denied) => Some((*denied, self.denial_fields(*denied))),
            Rejection::NoKey => None,
        }
    }
}

impl<C: Clock> ConcurrencyLimit<C> {
    pub(super) fn new(limit: Limit<C>) -> Result<Self, LimitError> {
        let limit = limit.without_after_response("ConcurrencyLayer")?;
        if !limit.rule.is_concurrency() {
            let (name, rule) = (limit.name.to_string(), limit.rule.to_string());
            return Err(LimitError::NotInFlight { name, rule });
        }
        let limiter = limit.limiter_in_memory()?;
        let max_wait = limit.rule.limit().permit_wait().unwrap_or(Span::ZERO);
        let (policy, jitter) = (ResponsePolicy::default(), Jitter::new(Span::ZERO));
        Ok(Self { limit, limiter, policy, max_wait, jitter })
    }

    /// Asks for a permit.
    fn acquire(self: &Arc<Self>, key: KeyBytes, cost: u64) -> Admission<Self> {
        let max_wait = if self.limit.is_shadow() { Span::ZERO } else { self.max_wait };
        let acquire = self.limiter.request(&key[..]).cost(cost).within(max_wait).acquire();
        let shared = Arc::clone(self);
        Admission::of(acquire, move |acquired| shared.acquired(acquired, &key, cost))
    }

    /// Reports the decision to observers, and admits or rejects the request.
    fn acquired(
        &self,
        acquired: Result<Permit<C>, Denied>,
        key: &[u8],
        cost: u64,
    ) -> Admission<Self> {
        let decision = match &acquired {
            Ok(permit) => permit.decision(),
            Err(denied) => denied.decision,
        };
        self.policy.observe(&self.limit, decision, Some(key), cost);
        match acquired {
            Ok(permit) => {
                let fields = self.fields(decision, &decision);
                Admission::Admitted(HeldPermit { permit: Some(permit), fields })
            }
            Err(_) if self.limit.is_shadow() => {
                let passed = self.limit.mode.apply(decision).decision;
                Admission::Admitted(HeldPermit {
                    permit: None,
                    fields: self.fields(passed, &passed),
                })
            }
            Err(mut denied) => {
                denied.decision = self.jitter.spread(decision);
                Admission::Rejected(Rejection::Denied(denied))
            }
        }
    }

    /// Returns the header fields of a denial, with `Retry-After`.
    fn denial_fields(&self, denied: Denied) -> PreparedFields {
        let mut joint = denied.decision;
        if let Verdict::Deny(Retry::OnRelease) = joint.verdict {
            // The time of a release is unknown. Jitter keeps the clients from all retrying after a second.
            joint.verdict = Verdict::Deny(Retry::After(RETRY_ON_RELEASE));
            joint = self.jitter.spread(joint);
        }
        self.fields(denied.decision, &joint)
    }

    fn fields(&self, decision: Decision, joint: &Decision) -> PreparedFields {
        self.with_status(decision, |status| self.policy.fields(status, joint))
    }

    /// Calls `work` with the status of the limit, if clients see it.
    fn with_status<R>(&self, decision: Decision, work: impl FnOnce(&[LimitStatus<'_>]) -> R) -> R {
        let rule = self.limiter.rule();
        work(self.limit.mode.status(&self.limit.name, &rule, decision).as_slice())
    }
}

impl<R: Body<Data = Bytes>, C: Clock> AfterAdmission<R> for HeldPermit<C> {
    /// Adds the header fields to the response. Its body holds the permit.
    fn complete<E>(self, result: Result<Response<R>, E>) -> Result<Response<LimitedBody<R>>, E> {
        let mut response = result?;
        self.fields.add_to(response.headers_mut());
        Ok(response.map(|body| LimitedBody::holding(body, self.permit)))
    }
}

impl<C: Clock> BodyGuard for Permit<C> {}

impl<C: Clock> fmt::Debug for ConcurrencyLimit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLimit").field("limit", &self.limit).finish_non_exhaustive()
    }
}
