//! Several limits as one: all are charged, or none is.
//!
//! Always   Limits in memory are decided in one step, under all their locks; limits in Redis in one script. Where a
//!          layer has both, memory is asked first and given back if Redis denies: others may be denied for that
//!          moment, never the other way round.
//!          Limits in the shadow are asked on their own, once, and stop nobody: see [`ShadowAction`].

use super::admission::{Admission, Decisions, RejectReason, Rejection};
use super::checks::Check;
use super::limit_set::LimitSet;
use super::settlement::Settlement;
use super::single::seen_after;
use crate::head::Head;
use crate::jitter::put_off;
use std::sync::Arc;
use tidegate::{Clock, Decision, Joint, Retry, Span, Verdict, check_all};
use tidegate_http::ShadowAction;

/// What the limits that are obeyed say, by their index, and what they say together.
struct JointDecision {
    each: Vec<(usize, Decision)>,
    all: Decision,
}

impl JointDecision {
    /// What was a wait for longer than this is a denial: Redis is not told beforehand how long is too long.
    fn refused_beyond(self, left: Span) -> Self {
        let refused = |(index, decision): (usize, Decision)| match decision.verdict {
            Verdict::Wait(span) if span > left => {
                (index, decision.deny(Retry::After(span.saturating_sub(left))).decision)
            }
            _ => (index, decision),
        };
        let each: Vec<_> = self.each.into_iter().map(refused).collect();
        let all = Joint::of(each.iter().map(|(_, decision)| *decision).collect()).decision;
        Self { each, all }
    }
}

impl<C: Clock> LimitSet<C> {
    #[cold]
    pub(super) fn decide_several(self: &Arc<Self>, head: &Head<'_>) -> Admission<C> {
        let mut asked = match self.asked(head) {
            Ok(asked) => asked,
            Err(why) => return Admission::refuse(why),
        };
        let is_here = self.limits.iter().all(|limit| limit.store.memory().is_some());
        if asked.is_complete() && is_here {
            let left = (!self.patience.is_zero()).then_some(self.patience);
            let round = self.ask_memory(&mut asked.checks, left);
            // A turn that is taken already must not be taken again.
            if let Verdict::Wait(span) = round.all.verdict {
                // Made before the future is: who never asks it has given up too.
                let charged = Settlement::always(self, asked.checks);
                let shared = Arc::clone(self);
                return Admission::Pending(Box::pin(async move {
                    shared.wait_out_all(charged, round, span).await
                }));
            }
            if self.nap(&round, left).is_none() {
                let JointDecision { mut each, all } = round;
                self.ask_shadows_in_memory(&asked.checks, &all, &mut each);
                return self.conclude(asked.checks, each, all);
            }
        }
        let shared = Arc::clone(self);
        Admission::Pending(Box::pin(async move {
            match asked.complete(&shared).await {
                Ok(checks) => shared.decide_later(checks).await,
                Err(why) => Admission::refuse(why),
            }
        }))
    }

    /// Asks, and again when it is told to, until the deadline.
    async fn decide_later(self: Arc<Self>, mut checks: Vec<Check>) -> Admission<C> {
        let clock = self.limits[0].clock.clone();
        let deadline = (!self.patience.is_zero()).then(|| clock.now() + self.patience);
        let left = || deadline.map(|deadline| deadline.since(clock.now()));
        loop {
            let mut round = self.ask(&mut checks, left()).await;
            let left = left();
            if let Verdict::Wait(span) = round.all.verdict {
                let charged = Settlement::always(&self, checks);
                let Some(left) = left.filter(|left| span > *left) else {
                    return Arc::clone(&self).wait_out_all(charged, round, span).await;
                };
                checks = charged.give_back();
                round = round.refused_beyond(left);
            }
            // Nobody who waits here has a index in a line; so there are only so many.
            if let Some(nap) = self.nap(&round, left)
                && let Some(_place) = self.waiter_slot()
            {
                clock.sleep_until(clock.now() + nap).await;
                continue;
            }
            self.ask_shadows(&checks, &round.all, &mut round.each).await;
            return self.conclude(checks, round.each, round.all);
        }
    }

    /// How long until it is worth asking again, of what is left of the layer's patience.
    fn nap(&self, round: &JointDecision, left: Option<Span>) -> Option<Span> {
        let Verdict::Deny(Retry::After(span)) = round.all.verdict else { return None };
        // A rule that makes requests wait has said by its denial that this one may not.
        let is_final = |(index, decision): &(usize, Decision)| {
            decision.is_deny() && self.limits[*index].store.rule().delays_requests()
        };
        let is_in_time = left.is_some_and(|left| !left.is_zero() && span <= left);
        (is_in_time && !round.each.iter().any(is_final)).then_some(span)
    }

    /// All have been charged and told to wait; whoever gives up gets it back.
    async fn wait_out_all(
        self: Arc<Self>,
        charged: Settlement<C>,
        JointDecision { mut each, mut all }: JointDecision,
        span: Span,
    ) -> Admission<C> {
        let clock = &self.limits[0].clock;
        let now = clock.now();
        clock.sleep_until(now + span).await;
        all.verdict = Verdict::Allow;
        let waited = clock.now().since(now);
        for decision in each.iter_mut().map(|(_, decision)| decision).chain([&mut all]) {
            *decision = seen_after(*decision, waited);
        }
        let checks = charged.into_questions();
        self.ask_shadows(&checks, &all, &mut each).await;
        self.conclude(checks, each, all)
    }

    fn conclude(
        self: &Arc<Self>,
        mut checks: Vec<Check>,
        each: Vec<(usize, Decision)>,
        all: Decision,
    ) -> Admission<C> {
        let mut decisions = Decisions::with_capacity(each.len());
        // For all of them the same, so that none tells an earlier time than they do together.
        let later = if all.is_deny() { self.jitter.draw() } else { Span::ZERO };
        for (index, decision) in each {
            let limit = &self.limits[index];
            if let Some(check) = checks.iter_mut().find(|check| check.index == index) {
                // Where another denies, this one has admitted nothing. One in the shadow was only looked at then.
                if !all.is_deny() || (decision.is_deny() && !limit.is_shadow()) {
                    let key = Some(&check.key[..]);
                    self.policy.observe(limit, decision, key, check.cost);
                }
                // Of others it is known since they were charged.
                if limit.is_shadow() && !decision.is_deny() {
                    check.drained_at = Some(Check::drains_at(limit.clock.now(), &decision));
                }
            }
            let told = if limit.is_shadow() { decision } else { put_off(decision, later) };
            decisions.push((index, told));
        }
        // A limit in the shadow that denies has charged nothing, and has nothing to give back.
        checks.retain(|check| check.drained_at.is_some());
        if all.is_deny() {
            let why = RejectReason::Denied(put_off(all, later));
            return Admission::Rejected(Rejection { decisions, why });
        }
        self.pass(&decisions, Settlement::of(self, checks))
    }

    /// Asks those that are obeyed and in memory. They wait for no longer than what is left, if the layer has a deadline.
    fn ask_memory(&self, checks: &mut [Check], left: Option<Span>) -> JointDecision {
        let (mut places, mut asks) = (Vec::new(), Vec::new());
        for check in self.obeyed(checks) {
            if let Some(limiter) = self.limits[check.index].store.memory() {
                places.push(check.index);
                let ask = limiter.request(&check.key[..]).cost(check.cost);
                asks.push(match left {
                    Some(left) => ask.within(left),
                    None => ask,
                });
            }
        }
        let joint = check_all(asks);
        let each: Vec<_> = places.into_iter().zip(joint.each).collect();
        self.note_drained(checks, &each);
        JointDecision { each, all: joint.decision }
    }

    /// Asks all that are obeyed.
    async fn ask(&self, checks: &mut [Check], left: Option<Span>) -> JointDecision {
        let mut round = self.ask_memory(checks, left);
        if round.all.is_deny() {
            return round;
        }
        let mut charged = InMemory { shared: self, checks, is_given_back: true };
        let shared = self.ask_redis(checks).await;
        charged.is_given_back = shared.iter().any(|(_, decision)| decision.is_deny());
        drop(charged);
        self.note_drained(checks, &shared);
        round.each.extend(shared);
        round.all = Joint::of(round.each.iter().map(|(_, decision)| *decision).collect()).decision;
        round
    }

    /// Notes when each charge will be back by itself. If one of them denies, nothing was charged and nobody asks.
    fn note_drained(&self, checks: &mut [Check], each: &[(usize, Decision)]) {
        for (index, decision) in each {
            let drained_at = Check::drains_at(self.limits[*index].clock.now(), decision);
            for check in checks.iter_mut().filter(|check| check.index == *index) {
                check.drained_at = Some(drained_at);
            }
        }
    }

    #[cfg(feature = "redis")]
    async fn ask_redis(&self, checks: &[Check]) -> Vec<(usize, Decision)> {
        use crate::store::Store;
        use tidegate_redis::{JointAsk, decide_all};
        let (mut places, mut asked) = (Vec::new(), Vec::new());
        for check in self.obeyed(checks) {
            if let Store::Redis(limiter) = &self.limits[check.index].store {
                places.push(check.index);
                asked.push((limiter, &check.key[..], check.cost));
            }
        }
        let ask = asked.iter().map(|(limiter, key, cost)| JointAsk { limiter, key, cost: *cost });
        let asks: Vec<JointAsk<'_>> = ask.collect();
        match &asks[..] {
            [] => Vec::new(),
            // One on its own may have a lease, and is then decided here.
            [ask] => vec![(places[0], ask.limiter.check_n(ask.key, ask.cost).await)],
            _ => places.into_iter().zip(decide_all(&asks).await.each).collect(),
        }
    }

    #[cfg(not(feature = "redis"))]
    #[expect(clippy::unused_async, reason = "its twin with the feature waits")]
    async fn ask_redis(&self, _: &[Check]) -> Vec<(usize, Decision)> {
        Vec::new()
    }

    fn obeyed<'a>(&self, checks: &'a [Check]) -> impl Iterator<Item = &'a Check> {
        checks.iter().filter(|check| !self.limits[check.index].is_shadow())
    }

    fn shadows<'a>(&self, checks: &'a [Check]) -> impl Iterator<Item = &'a Check> {
        checks.iter().filter(|check| self.limits[check.index].is_shadow())
    }

    fn ask_shadows_in_memory(
        &self,
        checks: &[Check],
        all: &Decision,
        each: &mut Vec<(usize, Decision)>,
    ) {
        for check in self.shadows(checks) {
            if let Some(limiter) = self.limits[check.index].store.memory() {
                let ask = limiter.request(&check.key[..]).cost(check.cost);
                let decision = match ShadowAction::after(all) {
                    ShadowAction::Check => ask.check(),
                    ShadowAction::Peek => ask.peek(),
                };
                each.push((check.index, decision));
            }
        }
    }

    async fn ask_shadows(
        &self,
        checks: &[Check],
        all: &Decision,
        each: &mut Vec<(usize, Decision)>,
    ) {
        // Collected first: who borrows a filter across an answer cannot be sent to another thread.
        let shadows: Vec<&Check> = self.shadows(checks).collect();
        for check in shadows {
            let store = &self.limits[check.index].store;
            let decision = match ShadowAction::after(all) {
                ShadowAction::Check => Some(store.check(&check.key, check.cost).await),
                // Where there is nothing to look at, nothing is lost: the request is denied anyway.
                ShadowAction::Peek => store.peek(&check.key, check.cost).await,
            };
            each.extend(decision.map(|decision| (check.index, decision)));
        }
    }
}

/// What memory was charged while Redis is asked: given back if Redis denies, or nobody waits for its answer.
struct InMemory<'a, C: Clock> {
    shared: &'a LimitSet<C>,
    checks: &'a [Check],
    is_given_back: bool,
}

impl<C: Clock> Drop for InMemory<'_, C> {
    fn drop(&mut self) {
        if !self.is_given_back {
            return;
        }
        for check in self.shared.obeyed(self.checks) {
            let limit = &self.shared.limits[check.index];
            if let Some(limiter) = limit.store.memory()
                && !check.is_drained(limit.clock.now())
            {
                limiter.refund(&check.key[..], check.cost);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyBytes;
    use crate::limit::Limit;
    use tidegate::{Limiter, ManualClock};

    /// Redis takes its time to deny, or whoever asked is gone before it does.
    #[test]
    fn what_drained_while_redis_was_asked_is_not_given_back() {
        let clock = ManualClock::new();
        let limiter = Limiter::with_clock("10/s".parse().unwrap(), clock.clone());
        let shared = LimitSet::new(Limit::over("here", limiter.clone()));
        for asked_for in [99, 100].map(Span::from_millis) {
            clock.advance(Span::from_secs(1));
            let mut checks = [Check::new(0, KeyBytes::new(), 1)];
            assert!(shared.ask_memory(&mut checks, None).all.is_allow());
            let charged = InMemory { shared: &shared, checks: &checks, is_given_back: true };
            clock.advance(asked_for);
            assert!(limiter.check_n(&b""[..], 6).is_allow(), "somebody else's");
            drop(charged);
            let remaining = limiter.check_n(&b""[..], 0).remaining;
            assert_eq!(remaining, 4, "it was as if never asked, after {asked_for}");
        }
    }
}
