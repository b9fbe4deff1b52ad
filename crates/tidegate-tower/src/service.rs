//! The services that the layers make, and the types that they are generic over.

pub use crate::body_rate::{DownloadRate, UploadRate};
pub use crate::concurrency::Concurrency;
pub use crate::fallback::{Fallback, FallbackService, NoFallback};
pub use crate::load::{Load, LoadLayer, LoadService};
pub use crate::outgoing::{CallKey, Keyed, Outgoing, Unkeyed};
pub use crate::rate_limit::RateLimit;
