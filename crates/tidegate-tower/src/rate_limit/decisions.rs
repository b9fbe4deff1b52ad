//! The decisions of the limits of a layer about one request.

use smallvec::SmallVec;
use tidegate::{Decision, Joint, Span, Verdict};

/// The decision of each limit that counts a request, and the joint decision of those that are enforced.
pub struct JointDecision {
    /// By the index of the limit in its layer.
    pub(super) each: SmallVec<[(usize, Decision); 1]>,
    pub(super) joint: Decision,
}

impl JointDecision {
    /// The decision about a request that no limit counts.
    pub(super) fn none() -> Self {
        Self { each: SmallVec::new(), joint: Decision::UNLIMITED }
    }

    pub(super) fn of_one(limit: usize, decision: Decision) -> Self {
        Self { each: SmallVec::from_buf([(limit, decision)]), joint: decision }
    }

    /// Adds limits that another store has decided.
    pub(super) fn add(&mut self, limits: impl Iterator<Item = usize>, other: Joint) {
        self.each.extend(limits.zip(other.each));
        self.joint = Joint::of(vec![self.joint, other.decision]).decision;
    }

    /// Turns an admission that was decided before a wait of this length into one that is valid after it.
    pub(super) fn after_wait(mut self, waited: Span) -> Self {
        for (_, decision) in &mut self.each {
            *decision = after_wait(*decision, waited);
        }
        self.joint = after_wait(self.joint, waited);
        self.joint.verdict = Verdict::Allow;
        self
    }
}

/// Returns an admission that was decided before a wait as it is after the wait. Denials are not changed: a denial is made when
/// it is returned.
pub(super) fn after_wait(mut decision: Decision, waited: Span) -> Decision {
    // `Span::MAX` means that the key never recovers.
    if !decision.is_deny() && decision.reset_after < Span::MAX {
        decision.reset_after = decision.reset_after.saturating_sub(waited);
    }
    decision
}
