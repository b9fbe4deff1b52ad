//! Several limits as one: all are charged, or none is.
//!
//! Always   Limits in memory are decided in one step, under all their locks; limits in Redis in one script. Where a
//!          layer has both, memory is asked first and given back if Redis denies: others may be denied for that
//!          moment, never the other way round.
//!          Limits in the shadow are asked on their own, once, and stop nobody.

use super::alone::seen_after;
use super::asked::Question;
use super::outcome::{Answers, Outcome, Passed, Refused, Why};
use super::settle::Settlement;
use super::shared::Shared;
use crate::answer::Answer;
use crate::head::Head;
use crate::jitter::put_off;
use std::sync::Arc;
use tidegate::{Clock, Decision, Joint, Retry, Span, Verdict, check_all};

/// What the limits that are obeyed say, by their place, and what they say together.
struct Round {
    each: Vec<(usize, Decision)>,
    all: Decision,
}

impl<C: Clock> Shared<C> {
    #[cold]
    pub(super) fn decide_several(self: &Arc<Self>, head: &Head<'_>) -> Outcome<C> {
        let asked = match self.asked(head) {
            Ok(asked) => asked,
            Err(why) => return Outcome::refuse(why),
        };
        let is_here = self.limits.iter().all(|limit| limit.store.memory().is_some());
        if asked.is_complete() && is_here {
            let round = self.ask_memory(&asked.questions);
            if !has_to_wait(&round.all, self.patience) {
                let mut each = round.each;
                self.ask_shadows_in_memory(&asked.questions, &mut each);
                return self.conclude(asked.questions, each, round.all);
            }
            // A turn that is taken already must not be taken again.
            if let Verdict::Wait(span) = round.all.verdict {
                // Made before the future is: who never asks it has given up too.
                let charged = self.charged(asked.questions, &round);
                let shared = Arc::clone(self);
                return Outcome::Later(Box::pin(async move {
                    shared.wait_out_all(charged, round, span).await
                }));
            }
        }
        let shared = Arc::clone(self);
        Outcome::Later(Box::pin(async move {
            match asked.complete(&shared).await {
                Ok(questions) => shared.decide_later(questions).await,
                Err(why) => Outcome::refuse(why),
            }
        }))
    }

    /// Asks, and again when it is told to, until the deadline.
    async fn decide_later(self: Arc<Self>, questions: Vec<Question>) -> Outcome<C> {
        let clock = self.limits[0].clock.clone();
        let deadline = clock.now() + self.patience;
        loop {
            let round = self.ask(&questions).await;
            let patience = deadline.since(clock.now());
            if !has_to_wait(&round.all, patience) {
                let mut each = round.each;
                self.ask_shadows(&questions, &mut each).await;
                return self.conclude(questions, each, round.all);
            }
            match round.all.verdict {
                Verdict::Wait(span) => {
                    let charged = self.charged(questions, &round);
                    return Arc::clone(&self).wait_out_all(charged, round, span).await;
                }
                Verdict::Deny(Retry::After(span)) => {
                    // Nobody who waits here has a place in a line; so there are only so many.
                    let Some(_place) = self.wait_place() else {
                        return self.conclude(questions, round.each, round.all);
                    };
                    clock.sleep_until(clock.now() + span).await;
                }
                Verdict::Allow | Verdict::Deny(_) => {
                    return self.conclude(questions, round.each, round.all);
                }
            }
        }
    }

    /// What is given back to whoever gives up before the turn has come.
    fn charged(self: &Arc<Self>, mut questions: Vec<Question>, round: &Round) -> Settlement<C> {
        for (place, decision) in &round.each {
            let drained_at = self.limits[*place].clock.now() + decision.reset_after;
            for question in questions.iter_mut().filter(|question| question.place == *place) {
                question.drained_at = Some(drained_at);
            }
        }
        Settlement::always(self, questions)
    }

    /// All have been charged and told to wait; whoever gives up gets it back.
    async fn wait_out_all(
        self: Arc<Self>,
        charged: Settlement<C>,
        Round { mut each, mut all }: Round,
        span: Span,
    ) -> Outcome<C> {
        let clock = &self.limits[0].clock;
        let now = clock.now();
        clock.sleep_until(now + span).await;
        all.verdict = Verdict::Allow;
        let waited = clock.now().since(now);
        for decision in each.iter_mut().map(|(_, decision)| decision).chain([&mut all]) {
            *decision = seen_after(*decision, waited);
        }
        let questions = charged.into_questions();
        self.ask_shadows(&questions, &mut each).await;
        self.conclude(questions, each, all)
    }

    fn conclude(
        self: &Arc<Self>,
        mut questions: Vec<Question>,
        each: Vec<(usize, Decision)>,
        all: Decision,
    ) -> Outcome<C> {
        let mut answers = Vec::with_capacity(each.len());
        // For all of them the same, so that none tells an earlier time than they do together.
        let later = if all.is_deny() { self.jitter.draw() } else { Span::ZERO };
        for (place, decision) in each {
            let limit = &self.limits[place];
            if let Some(question) = questions.iter_mut().find(|question| question.place == place) {
                self.manners.observe(limit, decision, question.key.as_bytes(), question.cost);
                if !decision.is_deny() {
                    question.drained_at = Some(limit.clock.now() + decision.reset_after);
                }
            }
            let answer = if limit.is_shadow {
                Answer::shadowed(decision)
            } else {
                Answer::obeyed(put_off(decision, later))
            };
            answers.push((place, answer));
        }
        // A limit in the shadow that denies has charged nothing, and has nothing to give back.
        questions.retain(|question| question.drained_at.is_some());
        let answers = Answers::Several(answers);
        if all.is_deny() {
            let why = Why::Denied(put_off(all, later));
            return Outcome::Refuse(Refused { answers, why });
        }
        let settlement = Settlement::of(self, questions);
        Outcome::Pass(Passed { telling: self.tell(answers), settlement })
    }

    /// Asks those that are obeyed and in memory.
    fn ask_memory(&self, questions: &[Question]) -> Round {
        let (mut places, mut asks) = (Vec::new(), Vec::new());
        for question in self.obeyed(questions) {
            if let Some(limiter) = self.limits[question.place].store.memory() {
                places.push(question.place);
                let ask = limiter.ask(question.key.as_bytes()).cost(question.cost);
                asks.push(if self.patience.is_zero() { ask } else { ask.within(self.patience) });
            }
        }
        let joint = check_all(asks);
        Round { each: places.into_iter().zip(joint.each).collect(), all: joint.decision }
    }

    /// Asks all that are obeyed.
    async fn ask(&self, questions: &[Question]) -> Round {
        let mut round = self.ask_memory(questions);
        if round.all.is_deny() {
            return round;
        }
        let mut charged = InMemory { shared: self, questions, is_given_back: true };
        let shared = self.ask_redis(questions).await;
        charged.is_given_back = shared.iter().any(|(_, decision)| decision.is_deny());
        drop(charged);
        round.each.extend(shared);
        round.all = Joint::of(round.each.iter().map(|(_, decision)| *decision).collect()).decision;
        round
    }

    #[cfg(feature = "redis")]
    async fn ask_redis(&self, questions: &[Question]) -> Vec<(usize, Decision)> {
        use crate::store::Store;
        use tidegate_redis::{JointAsk, decide_all};
        let (mut places, mut asks) = (Vec::new(), Vec::new());
        for question in self.obeyed(questions) {
            if let Store::Redis(limiter) = &self.limits[question.place].store {
                let (key, cost) = (question.key.as_bytes(), question.cost);
                places.push(question.place);
                asks.push(JointAsk { limiter, key, cost });
            }
        }
        match &asks[..] {
            [] => Vec::new(),
            // One on its own may have a lease, and is then decided here.
            [ask] => vec![(places[0], ask.limiter.check_n(ask.key, ask.cost).await)],
            _ => places.into_iter().zip(decide_all(&asks).await.each).collect(),
        }
    }

    #[cfg(not(feature = "redis"))]
    #[expect(clippy::unused_async, reason = "its twin with the feature waits")]
    async fn ask_redis(&self, _: &[Question]) -> Vec<(usize, Decision)> {
        Vec::new()
    }

    fn obeyed<'a>(&self, questions: &'a [Question]) -> impl Iterator<Item = &'a Question> {
        questions.iter().filter(|question| !self.limits[question.place].is_shadow)
    }

    fn shadows<'a>(&self, questions: &'a [Question]) -> impl Iterator<Item = &'a Question> {
        questions.iter().filter(|question| self.limits[question.place].is_shadow)
    }

    fn ask_shadows_in_memory(&self, questions: &[Question], each: &mut Vec<(usize, Decision)>) {
        for question in self.shadows(questions) {
            if let Some(limiter) = self.limits[question.place].store.memory() {
                let decision = limiter.check_n(question.key.as_bytes(), question.cost);
                each.push((question.place, decision));
            }
        }
    }

    async fn ask_shadows(&self, questions: &[Question], each: &mut Vec<(usize, Decision)>) {
        // Collected first: who borrows a filter across an answer cannot be sent to another thread.
        let shadows: Vec<&Question> = self.shadows(questions).collect();
        for question in shadows {
            let store = &self.limits[question.place].store;
            let decision = store.check(question.key.as_bytes(), question.cost).await;
            each.push((question.place, decision));
        }
    }
}

/// What memory was charged while Redis is asked: given back if Redis denies, or nobody waits for its answer.
struct InMemory<'a, C: Clock> {
    shared: &'a Shared<C>,
    questions: &'a [Question],
    is_given_back: bool,
}

impl<C: Clock> Drop for InMemory<'_, C> {
    fn drop(&mut self) {
        if !self.is_given_back {
            return;
        }
        for question in self.shared.obeyed(self.questions) {
            if let Some(limiter) = self.shared.limits[question.place].store.memory() {
                limiter.refund(question.key.as_bytes(), question.cost);
            }
        }
    }
}

fn has_to_wait(all: &Decision, patience: Span) -> bool {
    match all.verdict {
        Verdict::Wait(_) => true,
        Verdict::Deny(Retry::After(span)) => !patience.is_zero() && span <= patience,
        Verdict::Allow | Verdict::Deny(_) => false,
    }
}
