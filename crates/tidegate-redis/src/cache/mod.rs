//! What this node remembers of Redis's answers for up to a second, so that it need not ask again.

mod denied;
mod remaining;

pub(crate) use denied::{DeniedKeys, SentAt};
pub(crate) use remaining::LeftKeys;
