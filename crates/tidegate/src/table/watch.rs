//! Those who look over a shard's shoulder, if they were asked to: the sketch and the auditor.

use super::audit::Auditor;
use super::fingerprint::Fingerprint;
use super::top::{KeyName, SAMPLE, Sketch};
use tidegate_core::{Decision, Limit, Timestamp};

#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub(super) sketches: Option<Sketches>,
    pub(super) auditor: Option<Auditor>,
}

#[derive(Clone, Debug)]
pub(super) struct Sketches {
    pub(super) hot: Sketch,
    pub(super) denied: Sketch,
    /// A small random number generator: sampling every so manyeth decision would be blind to traffic
    /// that repeats itself.
    random: u64,
}

impl Sketches {
    pub(super) fn new(seed: u64) -> Self {
        Self { hot: Sketch::default(), denied: Sketch::default(), random: seed | 1 }
    }

    pub(super) fn hear(
        &mut self,
        key: Fingerprint,
        now: Timestamp,
        is_denied: bool,
        name: impl Fn() -> KeyName,
    ) {
        if !self.is_sampled() {
            return;
        }
        if is_denied {
            self.denied.add(key, now, &name);
        }
        self.hot.add(key, now, &name);
    }

    fn is_sampled(&mut self) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.is_multiple_of(SAMPLE)
    }
}

impl Watch {
    /// Whether it has to hear of every decision about this key.
    #[inline]
    pub(super) fn wants(&self, key: Fingerprint) -> bool {
        self.sketches.is_some() || self.auditor.as_ref().is_some_and(|auditor| auditor.watches(key))
    }

    pub(super) fn hear(
        &mut self,
        limit: &Limit,
        key: Fingerprint,
        (now, cost): (Timestamp, u64),
        decision: &Decision,
        name: impl Fn() -> KeyName,
    ) {
        if let Some(auditor) = self.auditor.as_mut().filter(|auditor| auditor.watches(key)) {
            auditor.hear(limit, key, (now, cost), decision);
        }
        if let Some(sketches) = &mut self.sketches {
            sketches.hear(key, now, decision.is_deny(), name);
        }
    }
}
