//! How the layers respond: the response to a rejected request, the settings that layers share, and the body of every response.

pub(crate) mod body;
pub(crate) mod fallback;
pub(crate) mod jitter;
pub(crate) mod policy;
pub(crate) mod rejection;
