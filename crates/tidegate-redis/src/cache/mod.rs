//! Caches of Redis's answers, for up to a second.

mod denied;
mod remaining;

pub(crate) use denied::{DenialCache, SentAt};
pub(crate) use remaining::RemainingCache;
