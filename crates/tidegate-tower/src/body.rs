//! The bodies of requests and responses that pass through the layers.

pub use crate::body_rate::ThrottledBody;
pub use crate::guarded_body::GuardedBody;
pub use crate::limited_body::LimitedBody;
