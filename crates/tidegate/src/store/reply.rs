//! The reply of a store: a value, or a future.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The reply of a store: ready at once from memory, or a future of a store over a network.
///
/// It is a future itself, so most callers just `.await` it.
#[must_use = "a reply does nothing until it is awaited"]
pub enum Reply<'a, T> {
    /// The value. `None` after it was returned.
    Ready(Option<T>),
    /// The reply of a store over a network.
    Pending(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

impl<'a, T> Reply<'a, T> {
    /// Creates a reply from its value.
    #[inline]
    pub fn now(value: T) -> Self {
        Self::Ready(Some(value))
    }

    /// Creates a reply from a future.
    pub fn later(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self::Pending(Box::pin(future))
    }

    /// Returns the value if it is there already, and the reply itself otherwise.
    ///
    /// # Errors
    /// The reply is a future that has to be awaited.
    ///
    /// # Panics
    /// If the reply was awaited before.
    #[inline]
    pub fn ready(self) -> Result<T, Self> {
        match self {
            Self::Ready(value) => Ok(value.expect("a reply is taken once")),
            Self::Pending(_) => Err(self),
        }
    }

    /// Changes the value of the reply.
    pub fn map<U>(self, change: impl FnOnce(T) -> U + Send + 'a) -> Reply<'a, U>
    where
        T: 'a,
    {
        match self {
            Self::Ready(value) => Reply::Ready(value.map(change)),
            Self::Pending(future) => Reply::later(async move { change(future.await) }),
        }
    }
}

impl<T: Unpin> Future for Reply<'_, T> {
    type Output = T;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match &mut *self {
            Self::Ready(value) => {
                Poll::Ready(value.take().expect("a reply is polled to its end once"))
            }
            Self::Pending(future) => future.as_mut().poll(cx),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Reply<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(value) => f.debug_tuple("Ready").field(value).finish(),
            Self::Pending(_) => f.write_str("Pending(..)"),
        }
    }
}
