//! Errors of stores.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The reason why a store could not carry out a call. A denial is not an error.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The store did not answer, or answered with an error.
    Unavailable(Arc<dyn Error + Send + Sync>),
    /// The store did not answer when a permit was released. The release is repeated until the store answers or the lease ends.
    ReleasePending(Arc<dyn Error + Send + Sync>),
    /// Too many requests with an idempotency key are stored. The request was not charged.
    TooManyIdempotencyKeys {
        /// The maximum number of stored requests.
        max: usize,
    },
    /// The requests of one joint decision name limits of different stores. Nothing was charged.
    MixedStores,
}

impl StoreError {
    /// Wraps the error of a store that did not answer.
    pub fn unavailable(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Unavailable(Arc::new(error))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(error) => error.fmt(f),
            Self::ReleasePending(error) => {
                write!(f, "the permit will be released as soon as the store answers: {error}")
            }
            Self::TooManyIdempotencyKeys { max } => write!(
                f,
                "the server stores at most {max} requests with an id, three quarters of them for one client, and has no entry left: \
                 retry in a moment, or send the request without an id"
            ),
            Self::MixedStores => {
                f.write_str("limits of different stores cannot be decided together")
            }
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unavailable(error) | Self::ReleasePending(error) => error.source(),
            Self::TooManyIdempotencyKeys { .. } | Self::MixedStores => None,
        }
    }
}
