//! The bodies of requests and responses that pass through the layers.

pub use crate::body_rate::ThrottledBody;
pub use crate::response::body::LimitedBody;
