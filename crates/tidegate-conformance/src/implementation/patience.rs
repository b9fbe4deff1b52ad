//! Who asks a server waits for its answer: not at all if its limits are in memory, for a round trip if they are in Redis.

use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate::ManualClock;
use tokio::runtime::Runtime;

/// Between two looks at whether the server waits for the test's clock.
const LOOK: Duration = Duration::from_millis(2);

/// How an answer is waited for.
#[derive(Clone)]
pub enum Patience {
    /// It comes at once.
    None,
    /// It comes in this runtime, and not while the server waits for this clock.
    Until(Rc<Runtime>, ManualClock),
}

impl Patience {
    /// The answer; none if it takes another time than now.
    pub(super) fn wait<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        self.wait_pinned(pin!(answer))
    }

    /// The same with an answer that may be waited for again.
    pub(super) fn wait_pinned<T>(
        &self,
        mut answer: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        match self {
            Self::None => match answer.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => None,
            },
            Self::Until(runtime, clock) => runtime.block_on(async {
                // Others may wait for the clock already.
                let others = clock.sleepers();
                loop {
                    if let Ok(answer) = tokio::time::timeout(LOOK, answer.as_mut()).await {
                        return Some(answer);
                    }
                    if clock.sleepers() > others {
                        return None;
                    }
                }
            }),
        }
    }
}
