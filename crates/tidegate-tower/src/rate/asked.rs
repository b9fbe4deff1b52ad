//! What is asked of each limit that counts a request.

use super::outcome::Why;
use super::shared::Shared;
use crate::head::Head;
use crate::key::{Found, KeyBytes, LaterKey, Missing};
use crate::limit::OnMissing;
use tidegate::{Clock, Decision, Timestamp};

/// How much, for whom, under which limit.
pub(super) struct Question {
    pub(super) place: usize,
    pub(super) key: KeyBytes,
    pub(super) cost: u64,
    /// When nothing of the charge is left, and there is nothing to give back any more; unknown before it is charged.
    pub(super) drained_at: Option<Timestamp>,
}

impl Question {
    pub(super) fn new(place: usize, key: KeyBytes, cost: u64) -> Self {
        Self { place, key, cost, drained_at: None }
    }

    /// When nothing of what this decision charged is left. A decision without the key's state charged nothing.
    pub(super) fn drains_at(now: Timestamp, decision: &Decision) -> Timestamp {
        if decision.known_remaining().is_none() { now } else { now + decision.reset_after }
    }

    /// Whether there is nothing to give back any more. What has drained is back already; to give it back again would be
    /// to give it twice.
    pub(super) fn is_drained(&self, now: Timestamp) -> bool {
        self.drained_at.is_some_and(|drained| drained <= now)
    }
}

/// All questions about a request, some of whose keys may have to be waited for.
pub(super) struct Asked {
    pub(super) questions: Vec<Question>,
    later: Vec<(usize, u64, LaterKey)>,
}

impl Asked {
    pub(super) fn is_complete(&self) -> bool {
        self.later.is_empty()
    }

    /// Waits for the keys that were not there.
    pub(super) async fn complete<C: Clock>(self, shared: &Shared<C>) -> Result<Vec<Question>, Why> {
        let mut questions = self.questions;
        for (place, cost, key) in self.later {
            let key = match key.await {
                Some(key) => Some(key),
                None => shared.without_key(place, Missing::Part)?,
            };
            questions.extend(key.map(|key| Question::new(place, key, cost)));
        }
        questions.sort_by_key(|question| question.place);
        Ok(questions)
    }
}

impl<C: Clock> Shared<C> {
    /// What the limits that count this request ask, or why it goes no further.
    pub(super) fn asked(&self, head: &Head<'_>) -> Result<Asked, Why> {
        let mut asked =
            Asked { questions: Vec::with_capacity(self.limits.len()), later: Vec::new() };
        for (place, limit) in self.limits.iter().enumerate().filter(|(_, limit)| limit.counts(head))
        {
            let cost = limit.cost_of(head);
            let key = match limit.key_of(head) {
                Found::Key(key) => Some(key),
                Found::Missing(missing) => self.without_key(place, missing)?,
                Found::Later => {
                    asked.later.push((place, cost, limit.later_key_of(head)));
                    None
                }
            };
            asked.questions.extend(key.map(|key| Question::new(place, key, cost)));
        }
        Ok(asked)
    }

    /// The key of those who have none, or none if they are not counted.
    fn without_key(&self, place: usize, missing: Missing) -> Result<Option<KeyBytes>, Why> {
        match self.limits[place].without_key(missing) {
            Some(OnMissing::Shared) => Ok(Some(KeyBytes::new())),
            Some(OnMissing::Allow) => Ok(None),
            Some(OnMissing::Deny) | None => Err(Why::NoKey { limit: place, missing }),
        }
    }
}
