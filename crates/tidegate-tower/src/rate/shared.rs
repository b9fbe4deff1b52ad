//! What all clones of a layer's services share.

use super::outcome::{Answers, Outcome, Passed, Rest};
use super::settle::Settlement;
use crate::answer::{Answer, HeaderStyle, Said, Told, retry_after_s};
use crate::head::Head;
use crate::jitter::Jitter;
use crate::limit::Limit;
use crate::manners::Manners;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidegate::{Clock, Decision, Rule, Span};

#[derive(Clone)]
pub(crate) struct Shared<C: Clock> {
    pub(super) limits: Vec<Limit<C>>,
    pub(super) manners: Manners,
    pub(super) patience: Span,
    pub(super) jitter: Jitter,
    /// How many wait without a place in a line.
    waiting: Arc<AtomicUsize>,
}

/// So many wait at a time for several limits, or for one in Redis; more are refused at once.
pub(super) const WAITING_MAX: usize = 4_096;

/// Somebody who waits.
pub(super) struct WaitPlace(Arc<AtomicUsize>);

impl Drop for WaitPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<C: Clock> Shared<C> {
    pub(super) fn new(limit: Limit<C>) -> Self {
        Self {
            limits: vec![limit],
            manners: Manners::default(),
            patience: Span::ZERO,
            jitter: Jitter::new(Span::ZERO),
            waiting: Arc::default(),
        }
    }

    /// A place among those who wait, if there is one.
    pub(super) fn wait_place(&self) -> Option<WaitPlace> {
        let place = WaitPlace(Arc::clone(&self.waiting));
        (self.waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX).then_some(place)
    }

    /// Decides. One limit in memory, which is what most have, is decided on the spot.
    #[inline]
    pub(super) fn decide(self: &Arc<Self>, head: &Head<'_>) -> Outcome<C> {
        if let [limit] = &self.limits[..]
            && let Some(limiter) = limit.store.memory()
            && !limit.is_shadow()
        {
            return self.decide_alone(limit, limiter, head);
        }
        self.decide_several(head)
    }

    /// What is left to do for a request that one limit admitted.
    #[inline]
    pub(super) fn pass_alone(self: &Arc<Self>, decision: Decision) -> Passed<C> {
        match self.say_alone(&decision) {
            Some(said) => Passed::Told(said),
            None => self.pass(Answers::One(Answer::obeyed(decision)), None),
        }
    }

    /// What is left to do for a request that was admitted.
    #[cold]
    pub(super) fn pass(
        self: &Arc<Self>,
        answers: Answers,
        settlement: Option<Settlement<C>>,
    ) -> Passed<C> {
        let answers = if self.manners.style.is_none() { Answers::None } else { answers };
        if matches!(answers, Answers::None) && settlement.is_none() {
            return Passed::NOTHING;
        }
        let (shared, said) = (Arc::clone(self), self.say(&answers));
        Passed::Later(Some(Box::new(Rest { shared, answers, said, settlement })))
    }

    /// What a limit says that is alone, if there is a quick way to say it.
    #[inline]
    fn say_alone(&self, decision: &Decision) -> Option<Said> {
        let [limit] = &self.limits[..] else { return None };
        if self.manners.style != Some(HeaderStyle::Draft11) || !limit.store.has_first_rule() {
            return None;
        }
        limit.standing.map(|standing| standing.say(decision))
    }

    #[inline]
    pub(super) fn say(&self, answers: &Answers) -> Option<Said> {
        match answers {
            Answers::One(answer) => self.say_alone(&answer.decision),
            Answers::None | Answers::Several(_) => None,
        }
    }

    /// Tells the caller what is left, and when to come back if `all` deny.
    pub(super) fn write_fields(&self, headers: &mut HeaderMap, answers: &Answers, all: &Answer) {
        if let Some(said) = self.say(answers) {
            said.add(headers);
            if let Some(seconds) = retry_after_s(all) {
                headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
            }
            return;
        }
        self.with_told(answers, |told| self.manners.write(headers, told, all));
    }

    /// Hands over each limit that was asked and that clients are told of, its rule as it stands now, and what it said.
    pub(super) fn with_told<R>(&self, answers: &Answers, work: impl FnOnce(&[Told<'_>]) -> R) -> R {
        let answers = match answers {
            Answers::None => return work(&[]),
            Answers::One(answer) => {
                let limit = &self.limits[0];
                let changed = (!limit.store.has_first_rule()).then(|| limit.store.rule());
                let rule = changed.as_ref().unwrap_or(&limit.rule);
                return work(limit.mode.told(&limit.name, rule, *answer).as_slice());
            }
            Answers::Several(answers) => answers,
        };
        let changed: Vec<Option<Rule>> = answers
            .iter()
            .map(|(place, _)| &self.limits[*place].store)
            .map(|store| (!store.has_first_rule()).then(|| store.rule()))
            .collect();
        let told: Vec<Told<'_>> = answers
            .iter()
            .zip(&changed)
            .filter_map(|((place, answer), changed)| {
                let limit = &self.limits[*place];
                let rule = changed.as_ref().unwrap_or(&limit.rule);
                limit.mode.told(&limit.name, rule, *answer)
            })
            .collect();
        work(&told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_wait_and_no_more_until_one_leaves() {
        let shared = Shared::new(Limit::new("api", "1/s").unwrap());
        let mut places: Vec<_> = (0..WAITING_MAX).map(|_| shared.wait_place().unwrap()).collect();
        assert!(shared.wait_place().is_none());
        assert!(shared.wait_place().is_none(), "who is refused takes no place");
        places.pop();
        assert!(shared.wait_place().is_some());
    }
}
