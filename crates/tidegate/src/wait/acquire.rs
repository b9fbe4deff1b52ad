//! Waiting for admission, as a future.
//!
//! Always   Dropping the future at any await point leaves nothing behind: a turn that is not due returns its cost, the
//!          waiter leaves the permit queue, and a permit that was granted and not yet taken is released.
//!          If the turn would come too late, the request is denied at once, as by Guava's `tryAcquire`.

use crate::clock::{Clock, Sleep, SystemClock};
use crate::slot::{Admission, PermitWait, WaitOutcome};
use crate::store::Target;
use crate::wait::{Permit, Reservation};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tidegate_core::{Decision, Denied, Retry, Span, Timestamp, Verdict};

/// The future of an admission; made by [`Limiter::acquire`](crate::Limiter::acquire),
/// [`Gate::acquire`](crate::Gate::acquire) and [`Request::acquire`](crate::Request::acquire).
///
/// It joins the queue when it is first polled, and needs no particular runtime.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let gate = tidegate::Gate::new("concurrency 2".parse()?);
/// let permit = gate.acquire().await?;
/// // do the work
/// drop(permit);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Acquire<C: Clock = SystemClock> {
    target: Target<C>,
    cost: u64,
    max_wait: Span,
    stage: Stage<C>,
    sleep: Option<(Timestamp, Sleep)>,
}

enum Stage<C: Clock> {
    Start,
    /// In the queue of a rate limit: the turn comes at a known time.
    RateQueue(Reservation<C>),
    /// In the queue of a concurrency limit: the turn comes when permits are released.
    PermitQueue {
        wait: PermitWait,
        deadline: Timestamp,
    },
    Done,
}

type AcquireResult<C> = Result<Permit<C>, Denied>;

/// The state of the wait at a poll.
enum Progress<C: Clock> {
    Done(AcquireResult<C>),
    Sleep(Span),
    /// The rule changed to another kind: start again, with the rest of `max_wait`.
    Restart(Span),
}

impl<C: Clock> Acquire<C> {
    pub(crate) fn new(target: Target<C>, cost: u64, max_wait: Span) -> Self {
        Self { target, cost, max_wait, stage: Stage::Start, sleep: None }
    }

    fn start(&mut self) -> Option<AcquireResult<C>> {
        let (admission, max_wait) = self.target.admit(self.cost, self.max_wait);
        match admission {
            Admission::Now(decision, ticket) => {
                Some(Ok(Permit::new(&self.target, decision, ticket)))
            }
            Admission::Denied(denied) => Some(Err(denied)),
            Admission::Later(decision, queued) => {
                let reservation =
                    Reservation::new(self.target.without_key_name(), decision, Some(queued));
                self.stage = Stage::RateQueue(reservation);
                None
            }
            Admission::Queued(wait) => {
                let deadline = self.target.clock().now() + max_wait;
                self.stage = Stage::PermitQueue { wait, deadline };
                None
            }
        }
    }

    /// Checks whether the turn has come, and registers the waker.
    fn progress(&self, waker: &Waker) -> Progress<C> {
        match &self.stage {
            Stage::RateQueue(reservation) => match reservation.wait_and_watch(waker) {
                Span::ZERO => {
                    let decision = reservation.decision();
                    Progress::Done(Ok(Permit::new(&self.target, decision, None)))
                }
                wait => Progress::Sleep(wait),
            },
            Stage::PermitQueue { wait, deadline } => self.poll_permit_queue(wait, *deadline, waker),
            Stage::Start | Stage::Done => Progress::Sleep(Span::MAX),
        }
    }

    fn poll_permit_queue(
        &self,
        wait: &PermitWait,
        deadline: Timestamp,
        waker: &Waker,
    ) -> Progress<C> {
        // The waker is registered first, so that a grant in between is not missed.
        let mut outcome = wait.outcome(Some(waker));
        let (decision, lease_end) = self.target.with(|slot, context| {
            let decision = slot.look(context, self.cost);
            (decision, context.limit.next_lease_end(&slot.state, context.now))
        });
        // The deadline is in the clock's time; the limit's may be the calendar's, after a change of the rule.
        let now = self.target.clock().now();
        outcome = outcome.or_else(|| wait.outcome(Some(waker)));
        match outcome {
            Some(WaitOutcome::Granted(ticket)) => {
                let permit = Permit::new(&self.target, admitted(decision), Some(ticket));
                return Progress::Done(Ok(permit));
            }
            Some(WaitOutcome::Refused) => return Progress::Done(Err(decision.deny(Retry::Never))),
            Some(WaitOutcome::Restart) => return Progress::Restart(deadline.since(now)),
            None if now >= deadline => return Progress::Done(Err(too_late(decision))),
            None => {}
        }
        // The end of a lease frees a permit without a wake-up.
        let lease_end = lease_end.unwrap_or(Span::MAX);
        Progress::Sleep(deadline.since(now).min(lease_end).max(Span::from_micros(1)))
    }

    /// Sleeps until a time that may have changed since it was last polled.
    fn poll_sleep(&mut self, wait: Span, context: &mut Context<'_>) -> Poll<()> {
        let clock = self.target.clock();
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

/// Returns the current numbers with the verdict of an admission.
fn admitted(mut decision: Decision) -> Decision {
    decision.verdict = Verdict::Allow;
    decision
}

/// Returns the denial of a wait that took too long: the limit's own, or one that depends on a release.
fn too_late(decision: Decision) -> Denied {
    decision.into_result().err().unwrap_or_else(|| decision.deny(Retry::OnRelease))
}

impl<C: Clock> Future for Acquire<C> {
    type Output = AcquireResult<C>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<AcquireResult<C>> {
        loop {
            if matches!(self.stage, Stage::Start)
                && let Some(result) = self.start()
            {
                self.stage = Stage::Done;
                return Poll::Ready(result);
            }
            match self.progress(context.waker()) {
                Progress::Done(result) => {
                    self.finish();
                    return Poll::Ready(result);
                }
                Progress::Restart(max_wait) => {
                    self.max_wait = max_wait;
                    self.stage = Stage::Start;
                }
                Progress::Sleep(wait) => {
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
    /// Leaves the queue after the result was returned, without returning the cost.
    fn finish(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::RateQueue(reservation) => reservation.commit(),
            Stage::PermitQueue { wait, .. } => self.leave_queue(&wait),
            Stage::Start | Stage::Done => {}
        }
    }

    fn leave_queue(&self, wait: &PermitWait) {
        self.target.with(|slot, context| slot.leave_permit_queue(context, wait));
    }
}

impl<C: Clock> Drop for Acquire<C> {
    fn drop(&mut self) {
        if let Stage::PermitQueue { wait, .. } = &self.stage {
            self.leave_queue(wait);
        }
    }
}

impl<C: Clock> fmt::Debug for Acquire<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("cost", &self.cost).finish_non_exhaustive()
    }
}
