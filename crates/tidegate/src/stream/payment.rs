//! What an item pays before it may pass.
//!
//! Always   The whole cost is charged before the item passes, and nothing of it twice. A cost that the limit cannot
//!          admit at once is paid in parts of what it can.
//! Always   Dropped, it gives back the part whose turn has not come.

use crate::clock::{Clock, Sleep};
use crate::request::Request;
use crate::wait::Acquire;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tidegate_core::{Denied, Retry, Span, Verdict};

/// How long to wait before asking again where nobody can say.
const PAUSE: Span = Span::from_millis(10);

pub(super) struct Toll<C: Clock> {
    request: Request<C>,
    /// What has not been paid yet, the part that is being paid included.
    rest: u64,
    /// The most that the limit admits at once, as far as is known.
    most: u64,
    stage: Stage<C>,
}

enum Stage<C: Clock> {
    /// Nothing is being paid.
    Idle,
    /// So much is being paid.
    Pay(u64, Acquire<C>),
    /// It was refused, and will be asked again.
    Pause(Sleep),
}

impl<C: Clock> Toll<C> {
    pub(super) fn new(request: Request<C>) -> Self {
        Self { request: request.within(Span::MAX), rest: 0, most: u64::MAX, stage: Stage::Idle }
    }

    /// The next item costs this.
    pub(super) fn owe(&mut self, cost: u64) {
        self.rest = cost;
        self.most = u64::MAX;
    }

    /// Ready when all is paid.
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
                            // Of a concurrency limit, whose permits are for work: an item only passes.
                            drop(permit);
                            self.rest -= part;
                            self.stage = Stage::Idle;
                        }
                        Err(denied) => self.stage = self.refused(part, denied),
                    }
                }
                Stage::Pause(sleep) => {
                    ready!(Pin::new(sleep).poll(context));
                    self.stage = Stage::Idle;
                }
            }
        }
    }

    /// Too much at once is paid in parts; too many before us are waited for.
    fn refused(&mut self, part: u64, denied: Denied) -> Stage<C> {
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
