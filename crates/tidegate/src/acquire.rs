//! Waiting for one's turn, as a future.
//!
//! Always   Dropped at any await point it leaves nothing behind: a turn that is not due is given
//!          back, a place in the crowd is left, a permit granted and not yet taken is released.
//!          It refuses at once when the turn would come too late, as Guava's `tryAcquire` does.

use crate::clock::{Clock, Sleep, SystemClock};
use crate::crowd::Seat;
use crate::permit::Permit;
use crate::reservation::Reservation;
use crate::slot::Booking;
use crate::spot::Spot;
use crate::turn::Outcome;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tidegate_core::{Decision, Denied, Retry, Span, Timestamp, Verdict};

/// A wait for admission; made by [`acquire`](crate::Ask::acquire).
///
/// It takes its turn when it is first polled. It does not need any particular runtime.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let gate = tidegate::Gate::new("concurrency 2".parse()?);
/// let permit = gate.acquire().await?;
/// // work
/// drop(permit);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Acquire<C: Clock = SystemClock> {
    spot: Spot<C>,
    cost: u64,
    patience: Span,
    stage: Stage<C>,
    sleep: Option<(Timestamp, Sleep)>,
}

enum Stage<C: Clock> {
    Start,
    /// In line: the turn comes at a known time.
    Line(Reservation<C>),
    /// In the crowd: the turn comes when others have finished, or never.
    Crowd {
        seat: Seat,
        deadline: Timestamp,
    },
    Done,
}

type Answer<C> = Result<Permit<C>, Denied>;

/// What somebody who waits finds when they look.
enum Seen<C: Clock> {
    End(Answer<C>),
    Sleep(Span),
    /// The rule has changed its kind: ask again, with the patience that is left.
    Restart(Span),
}

impl<C: Clock> Acquire<C> {
    pub(crate) fn new(spot: Spot<C>, cost: u64, patience: Span) -> Self {
        Self { spot, cost, patience, stage: Stage::Start, sleep: None }
    }

    fn start(&mut self) -> Option<Answer<C>> {
        let (booking, patience) = self.spot.book(self.cost, self.patience);
        match booking {
            Booking::Now(decision, ticket) => Some(Ok(Permit::new(&self.spot, decision, ticket))),
            Booking::Not(denied) => Some(Err(denied)),
            Booking::Later(decision, place) => {
                let reservation = Reservation::new(self.spot.without_name(), decision, Some(place));
                self.stage = Stage::Line(reservation);
                None
            }
            Booking::Wait(seat) => {
                let deadline = self.spot.clock().now() + patience;
                self.stage = Stage::Crowd { seat, deadline };
                None
            }
        }
    }

    /// Looks whether the time has come.
    fn look(&self, waker: &Waker) -> Seen<C> {
        match &self.stage {
            Stage::Line(reservation) => match reservation.wait_and_watch(waker) {
                Span::ZERO => {
                    let decision = reservation.decision();
                    Seen::End(Ok(Permit::new(&self.spot, decision, None)))
                }
                wait => Seen::Sleep(wait),
            },
            Stage::Crowd { seat, deadline } => self.look_at_crowd(seat, *deadline, waker),
            Stage::Start | Stage::Done => Seen::Sleep(Span::MAX),
        }
    }

    fn look_at_crowd(&self, seat: &Seat, deadline: Timestamp, waker: &Waker) -> Seen<C> {
        // Watch first, then look: a grant in between is not missed.
        let mut outcome = seat.outcome(Some(waker));
        let (decision, lease_end) = self.spot.with(|slot, limit, now, wakes| {
            let decision = slot.look(limit, now, self.cost, wakes);
            (decision, slot.next_lease_end(limit, now))
        });
        // Not the limit's time: the rule may have become one that goes by the calendar.
        let now = self.spot.clock().now();
        outcome = outcome.or_else(|| seat.outcome(Some(waker)));
        match outcome {
            Some(Outcome::Granted(ticket)) => {
                let permit = Permit::new(&self.spot, admitted(decision), Some(ticket));
                return Seen::End(Ok(permit));
            }
            Some(Outcome::Refused) => return Seen::End(Err(decision.deny(Retry::Never))),
            Some(Outcome::Restart) => return Seen::Restart(deadline.since(now)),
            None if now >= deadline => return Seen::End(Err(too_late(decision))),
            None => {}
        }
        // A lease that runs out frees a permit without anybody saying so.
        let lease_end = lease_end.unwrap_or(Span::MAX);
        Seen::Sleep(deadline.since(now).min(lease_end).max(Span::from_micros(1)))
    }

    /// Sleeps until a time that may have changed since it was last polled.
    fn poll_sleep(&mut self, wait: Span, context: &mut Context<'_>) -> Poll<()> {
        let clock = self.spot.clock();
        let until = clock.now() + wait;
        match &mut self.sleep {
            Some((at, sleep)) if *at == until => Pin::new(sleep).poll(context),
            slot => {
                let (_, sleep) = slot.insert((until, clock.sleep_until(until)));
                Pin::new(sleep).poll(context)
            }
        }
    }
}

/// The numbers as they stand, for somebody who has just been admitted.
fn admitted(mut decision: Decision) -> Decision {
    decision.verdict = Verdict::Allow;
    decision
}

/// Why the wait was in vain: the limit's own reason, or that others were first.
fn too_late(decision: Decision) -> Denied {
    decision.ok().err().unwrap_or_else(|| decision.deny(Retry::OnRelease))
}

impl<C: Clock> Future for Acquire<C> {
    type Output = Answer<C>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer<C>> {
        loop {
            if matches!(self.stage, Stage::Start)
                && let Some(answer) = self.start()
            {
                self.stage = Stage::Done;
                return Poll::Ready(answer);
            }
            match self.look(context.waker()) {
                Seen::End(answer) => {
                    self.finish();
                    return Poll::Ready(answer);
                }
                Seen::Restart(patience) => {
                    self.patience = patience;
                    self.stage = Stage::Start;
                }
                Seen::Sleep(wait) => {
                    if self.poll_sleep(wait, context).is_pending() {
                        return Poll::Pending;
                    }
                    self.sleep = None;
                }
            }
        }
    }
}

impl<C: Clock> Acquire<C> {
    /// The answer is given: nothing is to be given back any more.
    fn finish(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Line(reservation) => reservation.commit(),
            Stage::Crowd { seat, .. } => self.walk_away(&seat),
            Stage::Start | Stage::Done => {}
        }
    }

    fn walk_away(&self, seat: &Seat) {
        self.spot.with(|slot, limit, now, wakes| slot.walk_away(limit, now, seat, wakes));
    }
}

impl<C: Clock> Drop for Acquire<C> {
    fn drop(&mut self) {
        if let Stage::Crowd { seat, .. } = &self.stage {
            self.walk_away(seat);
        }
    }
}

impl<C: Clock> fmt::Debug for Acquire<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("cost", &self.cost).finish_non_exhaustive()
    }
}
