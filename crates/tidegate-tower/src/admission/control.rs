//! How a layer decides a request, and what it does afterwards.

use crate::head::{AddressSource, Head};
use crate::response::body::LimitedBody;
use bytes::Bytes;
use http::Response;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tidegate::Denied;
use tidegate_http::PreparedFields;

/// Decides the requests of a layer. All clones of a layer's services share it.
pub trait AdmissionControl: Sized + Send + Sync + 'static {
    /// What is left to do for an admitted request when there is a response.
    type AfterAdmission;
    /// Why a request is rejected.
    type Rejection;

    /// Returns how the client's address is found.
    fn address_source(&self) -> &AddressSource;

    /// Decides a request.
    fn decide(self: &Arc<Self>, head: &Head<'_>) -> Admission<Self>;

    /// Returns the response to a rejected request.
    fn rejection(&self, head: &Head<'_>, why: &Self::Rejection) -> Response<Bytes>;

    /// Returns the denial, for the request to the fallback service, and the header fields for the response of that
    /// service. `None` if the fallback service is not to be called.
    fn denial(&self, why: &Self::Rejection) -> Option<(Denied, PreparedFields)>;
}

/// What is left to do for an admitted request when there is a response.
pub trait AfterAdmission<R> {
    /// Completes the response. `Err` means that the service has failed.
    fn complete<E>(self, result: Result<Response<R>, E>) -> Result<Response<LimitedBody<R>>, E>;
}

/// The decision about a request.
pub enum Admission<A: AdmissionControl> {
    /// The service is called.
    Admitted(A::AfterAdmission),
    /// The service is not called.
    Rejected(A::Rejection),
    /// The request waits for its turn, for a key or for Redis.
    Pending(PendingAdmission<A>),
}

pub(super) type PendingAdmission<A> = Pin<Box<dyn Future<Output = Admission<A>> + Send>>;

impl<A: AdmissionControl> Admission<A> {
    /// Polls a future once. If it is ready, the request is decided at once and nothing is boxed; otherwise the request waits.
    pub(crate) fn of<T>(
        mut future: impl Future<Output = T> + Unpin + Send + 'static,
        decide: impl FnOnce(T) -> Self + Send + 'static,
    ) -> Self {
        // A request that has to wait is polled again, with a waker.
        match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => decide(value),
            Poll::Pending => Self::Pending(Box::pin(async move { decide(future.await) })),
        }
    }
}
