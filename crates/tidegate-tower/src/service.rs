//! The services that the layers make, their futures, and the types that they are generic over.

use crate::concurrency::ConcurrencyLimit;
use crate::load::LoadSettings;
use crate::rate_limit::LimitSet;
use tidegate::SystemClock;

pub use crate::admission::{LimitedFuture, LimitedService};
pub use crate::body_rate::{BodyRateFuture, DownloadRate, UploadRate};
pub use crate::load::{Load, LoadLayer};
pub use crate::outgoing::{CallKey, Keyed, Outgoing, OutgoingFuture, Unkeyed};
pub use crate::response::fallback::{Fallback, FallbackService, NoFallback};

/// A service behind limits; made by [`RateLimitLayer`](crate::RateLimitLayer).
pub type RateLimit<S, C = SystemClock, F = NoFallback> = LimitedService<S, LimitSet<C>, F>;

/// A service whose requests in flight are limited; made by [`ConcurrencyLayer`](crate::ConcurrencyLayer).
pub type Concurrency<S, C = SystemClock, F = NoFallback> =
    LimitedService<S, ConcurrencyLimit<C>, F>;

/// A service that is called as far as the load allows; made by [`LoadLayer`].
pub type LoadService<S, L> = LimitedService<S, LoadSettings<L>>;
