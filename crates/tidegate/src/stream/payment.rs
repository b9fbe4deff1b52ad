//! The payment for an item of a limited stream.
//!
//! Always   The whole cost is charged before the item passes, and no part of it twice. A cost that the limit does not
//!          admit at once is paid in parts.
//! Always   Dropping the payment returns the part whose turn has not come.

use crate::clock::{Clock, Sleep};
use crate::request::Request;
use crate::wait::Acquire;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tidegate_core::{Denied, Retry, Span, Verdict};

/// The time before a denied part is tried again, if the denial has no time to retry.
const PAUSE: Span = Span::from_millis(10);

pub(super) struct Payment<C: Clock> {
    request: Request<C>,
    /// The unpaid cost, including the part that is being paid.
    rest: u64,
    /// The largest cost that the limit admits at once, as far as denials have shown.
    most: u64,
    stage: Stage<C>,
}

enum Stage<C: Clock> {
    /// Nothing is being paid.
    Idle,
    /// A part of this cost is being paid.
    Pay(u64, Acquire<C>),
    /// A part was denied, and is tried again after this sleep.
    Pause(Sleep),
}

impl<C: Clock> Payment<C> {
    pub(super) fn new(request: Request<C>) -> Self {
        Self { request: request.within(Span::MAX), rest: 0, most: u64::MAX, stage: Stage::Idle }
    }

    /// Sets the cost of the next item.
    pub(super) fn owe(&mut self, cost: u64) {
        self.rest = cost;
        self.most = u64::MAX;
    }

    /// Is ready when the whole cost is paid.
    pub(super) fn poll_paid(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.stage {
                Stage::Idle if self.rest == 0 => return Poll::Ready(()),
                Stage::Idle => {
                    let part = self.rest.min(self.most);
                    self.stage = Stage::Pay(part, self.request.clone().cost(part).acquire());
                }
                Stage::Pay(part, acquire) => {
                    let part = *part;
                    match ready!(Pin::new(acquire).poll(context)) {
                        Ok(permit) => {
                            // Under a concurrency limit a stream holds no permit: the item only passes.
                            drop(permit);
                            self.rest -= part;
                            self.stage = Stage::Idle;
                        }
                        Err(denied) => self.stage = self.denied(part, denied),
                    }
                }
                Stage::Pause(sleep) => {
                    ready!(Pin::new(sleep).poll(context));
                    self.stage = Stage::Idle;
                }
            }
        }
    }

    /// Chooses smaller parts if this one was too large, or else waits.
    fn denied(&mut self, part: u64, denied: Denied) -> Stage<C> {
        let pause = match denied.decision.verdict {
            Verdict::Deny(Retry::Never) if part > 1 => {
                self.most = denied.decision.limit.clamp(1, part - 1);
                return Stage::Idle;
            }
            Verdict::Deny(Retry::After(span)) => span,
            _ => PAUSE,
        };
        let clock = self.request.target.clock();
        Stage::Pause(clock.sleep_until(clock.now() + pause))
    }
}
