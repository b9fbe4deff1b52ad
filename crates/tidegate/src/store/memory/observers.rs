//! The observers of a shard's decisions, if they are enabled: the sketches of busy keys and the auditor.

use crate::store::audit::Auditor;
use crate::store::fingerprint::Fingerprint;
use crate::store::top_keys::{KeyName, Sketch};
use tidegate_core::{Decision, Limit, Timestamp};

#[derive(Clone, Debug)]
pub(super) struct Observers {
    pub(super) sketches: Option<Sketches>,
    pub(super) auditor: Option<Auditor>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Sketches {
    pub(super) hot: Sketch,
    pub(super) denied: Sketch,
}

impl Sketches {
    #[inline]
    pub(super) fn observe(
        &mut self,
        key: Fingerprint,
        now: Timestamp,
        is_denied: bool,
        name: impl Fn() -> KeyName,
    ) {
        if is_denied {
            self.denied.add(key, now, &name);
        }
        self.hot.add(key, now, &name);
    }
}

impl Observers {
    /// Returns whether every decision about this key has to be observed.
    #[inline]
    pub(super) fn wants(&self, key: Fingerprint) -> bool {
        self.sketches.is_some() || self.auditor.as_ref().is_some_and(|auditor| auditor.samples(key))
    }

    pub(super) fn observe(
        &mut self,
        limit: &Limit,
        key: Fingerprint,
        (now, cost): (Timestamp, u64),
        decision: &Decision,
        name: impl Fn() -> KeyName,
    ) {
        if let Some(auditor) = self.auditor.as_mut().filter(|auditor| auditor.samples(key)) {
            auditor.record(limit, key, (now, cost), decision);
        }
        if let Some(sketches) = &mut self.sketches {
            sketches.observe(key, now, decision.is_deny(), name);
        }
    }
}
