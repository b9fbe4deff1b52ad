//! The limits before the database: one for each buyer, and a token bucket for all of them.
//!
//! Always   The buyer's own limit is checked first, so that no buyer uses up the tokens of others by trying often.
//! Always   If the bucket denies an attempt, or the buyer disconnects while it waits, the attempt is refunded: it never
//!          reached the database.
//! Bound    At most burst + rate · t attempts reach the database in any time t since the first.

use std::time::Duration;

use tidegate::{Clock, Decision, Gate, Limiter, Rule, Span, SystemClock, Timestamp};

use crate::reply::SaleReply;

/// How long a buyer waits for a token, as in the seed of this example: `tryAcquire(1000, MILLISECONDS)`. An attempt
/// that would wait longer is denied at once.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// The two limits.
pub struct Entrance<C: Clock = SystemClock> {
    buyers: Limiter<C>,
    tokens: Gate<C>,
}

/// The rules of the two limits.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The rule of each buyer.
    pub per_buyer: Rule,
    /// The rule of all buyers together.
    pub rate: Rule,
}

impl Entrance {
    /// Creates the limits with the system clock.
    pub fn new(rules: Rules) -> Self {
        Self::with_clock(rules, SystemClock::new())
    }
}

impl<C: Clock + Clone> Entrance<C> {
    /// Creates the limits with this clock.
    pub fn with_clock(rules: Rules, clock: C) -> Self {
        Self {
            buyers: Limiter::with_clock(rules.per_buyer, clock.clone()),
            tokens: Gate::with_clock(rules.rate, clock),
        }
    }

    /// Waits for a token. The error is the reply to the buyer.
    ///
    /// If the buyer disconnects while it waits (the future is dropped), the token goes to the next waiter, and the attempt is
    /// refunded.
    pub async fn enter(&self, buyer: i64) -> Result<(), SaleReply> {
        let decision = self.buyers.check(&buyer);
        if let Err(denied) = decision.into_result() {
            return Err(SaleReply::TooMany { retry_after_ms: retry_after_ms(denied.decision) });
        }
        let drained_at = self.buyers.clock().now() + decision.reset_after;
        let mut attempt = Attempt { buyers: &self.buyers, buyer, drained_at, is_used: false };
        match self.tokens.request().within(PATIENCE).acquire().await {
            Ok(_) => {
                attempt.is_used = true;
                Ok(())
            }
            Err(denied) => Err(SaleReply::Busy { retry_after_ms: retry_after_ms(denied.decision) }),
        }
    }
}

/// What a buyer's own limit was charged: given back unless it is used.
struct Attempt<'a, C: Clock> {
    buyers: &'a Limiter<C>,
    buyer: i64,
    /// After this time the attempt has drained; a refund would count it twice.
    drained_at: Timestamp,
    is_used: bool,
}

impl<C: Clock> Drop for Attempt<'_, C> {
    fn drop(&mut self) {
        if !self.is_used && self.buyers.clock().now() < self.drained_at {
            self.buyers.refund(&self.buyer, 1);
        }
    }
}

/// Returns the wait, rounded up; a minute for a limit that never admits the request.
fn retry_after_ms(decision: Decision) -> u64 {
    decision.retry_after().unwrap_or(Span::from_secs(60)).as_micros().div_ceil(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};
    use tidegate::ManualClock;

    fn entrance(clock: &ManualClock) -> Entrance<ManualClock> {
        let rules =
            Rules { per_buyer: "1/10s".parse().unwrap(), rate: "1/s burst 1".parse().unwrap() };
        Entrance::with_clock(rules, clock.clone())
    }

    #[tokio::test]
    async fn a_repeated_attempt_is_denied_and_takes_no_token() {
        let clock = ManualClock::new();
        let entrance = entrance(&clock);
        assert_eq!(entrance.enter(1).await, Ok(()));
        let again = entrance.enter(1).await;
        assert_eq!(again, Err(SaleReply::TooMany { retry_after_ms: 10_000 }));
        clock.advance(Span::from_secs(1));
        assert_eq!(entrance.enter(2).await, Ok(()), "the token is still there");
    }

    #[tokio::test]
    async fn an_attempt_without_a_token_within_a_second_is_denied_at_once_and_refunded() {
        let clock = ManualClock::new();
        let entrance = entrance(&clock);
        assert_eq!(entrance.enter(1).await, Ok(()));
        let mut second = Box::pin(entrance.enter(2));
        tokio::select! {
            biased;
            _ = &mut second => panic!("the token comes in a second"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(entrance.enter(3).await, Err(SaleReply::Busy { retry_after_ms: 1_000 }));
        clock.advance(Span::from_secs(1));
        assert_eq!(second.await, Ok(()));
        clock.advance(Span::from_secs(1));
        assert_eq!(entrance.enter(3).await, Ok(()), "the attempt was refunded");
    }

    /// Starts to wait for a token, and gives up.
    fn give_up(entrance: &Entrance<ManualClock>, buyer: i64) {
        let mut gone = Box::pin(entrance.enter(buyer));
        let mut context = Context::from_waker(Waker::noop());
        assert!(gone.as_mut().poll(&mut context).is_pending(), "the token comes in a second");
    }

    #[tokio::test]
    async fn a_buyer_that_gives_up_leaves_its_token_to_the_next() {
        let clock = ManualClock::new();
        let entrance = entrance(&clock);
        assert_eq!(entrance.enter(1).await, Ok(()));
        give_up(&entrance, 2);
        clock.advance(Span::from_secs(1));
        assert_eq!(entrance.enter(3).await, Ok(()));
    }

    #[tokio::test]
    async fn a_buyer_that_gives_up_may_try_again() {
        let clock = ManualClock::new();
        let entrance = entrance(&clock);
        assert_eq!(entrance.enter(1).await, Ok(()));
        give_up(&entrance, 2);
        clock.advance(Span::from_secs(1));
        assert_eq!(entrance.enter(2).await, Ok(()), "the attempt was refunded");
        assert_eq!(entrance.enter(2).await, Err(SaleReply::TooMany { retry_after_ms: 10_000 }));
    }
}
