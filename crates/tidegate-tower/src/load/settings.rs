//! What a layer decides by, and how it responds to rejected requests.
//!
//! Always   The response to a rejected request says when to retry, whatever else it says.
//! Rounding `Retry-After` is rounded up, and never 0.

use crate::admission::{Admission, AdmissionControl, AfterAdmission};
use crate::head::{AddressSource, Head};
use crate::observer::{Event, Observer};
use crate::response::body::{BodyGuard, LimitedBody};
use crate::response::jitter::Jitter;
use crate::response::rejection;
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Response, StatusCode};
use http_body::Body;
use std::fmt;
use std::sync::Arc;
use tidegate::load::Priority;
use tidegate::{Decision, Denied, Retry, Span, Verdict};
use tidegate_http::{
    ByteWriter as _, FieldWriter as _, PreparedFields, RETRY_ON_RELEASE, retry_after_secs,
};

/// Decides by load whether a request is admitted: a [`Shedder`](tidegate::load::Shedder) or an
/// [`AdaptiveGate`](tidegate::load::AdaptiveGate).
pub trait Load: fmt::Debug + Clone + Send + Sync + 'static {
    /// The permit of an admitted request.
    type Permit: BodyGuard;
    /// Why a request is rejected.
    type Refusal: fmt::Display;
    /// The future of the decision.
    type Entering: Future<Output = Result<Self::Permit, Self::Refusal>> + Unpin + Send + 'static;

    /// The default name of its layers.
    #[doc(hidden)]
    const NAME: &'static str;

    /// Returns what events contain.
    #[doc(hidden)]
    fn decision(entered: Result<&Self::Permit, &Self::Refusal>) -> (Decision, Option<Priority>);
}

pub(super) type Enter<L> = Arc<dyn Fn(&Head<'_>) -> <L as Load>::Entering + Send + Sync>;
pub(super) type OnResponse<L> = Arc<
    dyn Fn(<L as Load>::Permit, StatusCode, &HeaderMap) -> Option<<L as Load>::Permit>
        + Send
        + Sync,
>;
type MakeRejection<L> =
    Arc<dyn Fn(&Head<'_>, &<L as Load>::Refusal) -> Response<Bytes> + Send + Sync>;

/// What all clones of a layer's services share.
#[derive(Clone)]
pub struct LoadSettings<L: Load> {
    /// Asks for a permit.
    pub(super) enter: Enter<L>,
    /// Is called with the permit and the head of the response. A permit that it returns is held until the body has ended.
    pub(super) on_response: OnResponse<L>,
    pub(super) retry_after: Span,
    pub(super) jitter: Jitter,
    pub(super) make_rejection: Option<MakeRejection<L>>,
    pub(super) address_source: AddressSource,
    pub(super) name: Arc<str>,
    pub(super) observers: Vec<Arc<dyn Observer>>,
}

/// The permit of an admitted request.
pub struct LoadPermit<L: Load> {
    permit: L::Permit,
    settings: Arc<LoadSettings<L>>,
}

impl<L: Load> LoadSettings<L> {
    pub(super) fn new(enter: Enter<L>, on_response: OnResponse<L>) -> Self {
        Self {
            enter,
            on_response,
            // It is unknown when the load ends.
            retry_after: RETRY_ON_RELEASE,
            jitter: Jitter::new(Span::ZERO),
            make_rejection: None,
            address_source: AddressSource::default(),
            name: L::NAME.into(),
            observers: Vec::new(),
        }
    }

    /// Calls the observers.
    fn observe(&self, entered: Result<&L::Permit, &L::Refusal>) {
        if self.observers.is_empty() {
            return;
        }
        let (decision, priority) = L::decision(entered);
        let (limit, is_shadow, cost, key) = (&*self.name, false, 1, None);
        let has_key = true;
        let event = Event { limit, decision, is_shadow, cost, key, has_key, priority };
        self.observers.iter().for_each(|observer| observer.decided(&event));
    }
}

impl<L: Load> AdmissionControl for LoadSettings<L> {
    type AfterAdmission = LoadPermit<L>;
    type Rejection = L::Refusal;

    fn address_source(&self) -> &AddressSource {
        &self.address_source
    }

    fn decide(self: &Arc<Self>, head: &Head<'_>) -> Admission<Self> {
        let settings = Arc::clone(self);
        Admission::of((self.enter)(head), move |entered| {
            settings.observe(entered.as_ref());
            match entered {
                Ok(permit) => Admission::Admitted(LoadPermit { permit, settings }),
                Err(refusal) => Admission::Rejected(refusal),
            }
        })
    }

    fn rejection(&self, head: &Head<'_>, refusal: &L::Refusal) -> Response<Bytes> {
        let mut response = match &self.make_rejection {
            Some(make) => make(head, refusal),
            None => rejection::reduced_capacity(head, &refusal.to_string()),
        };
        let denied = Decision::without_state(Verdict::Deny(Retry::After(self.retry_after)));
        if let Some(seconds) = retry_after_secs(&self.jitter.spread(denied)) {
            response.headers_mut().field(RETRY_AFTER, |out| out.put_number(seconds));
        }
        response
    }

    fn denial(&self, _: &L::Refusal) -> Option<(Denied, PreparedFields)> {
        None
    }
}

impl<R: Body<Data = Bytes>, L: Load> AfterAdmission<R> for LoadPermit<L> {
    fn complete<E>(self, result: Result<Response<R>, E>) -> Result<Response<LimitedBody<R>>, E> {
        let response = result?;
        let (status, headers) = (response.status(), response.headers());
        let permit = (self.settings.on_response)(self.permit, status, headers);
        Ok(response.map(|body| LimitedBody::holding(body, permit)))
    }
}

impl<L: Load> fmt::Debug for LoadSettings<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadSettings").field("name", &self.name).finish_non_exhaustive()
    }
}
