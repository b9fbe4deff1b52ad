//! What a buyer passes before the database: a limit for each buyer, and a token bucket for all of them.
//!
//! Always   The buyer's own limit comes first, so that nobody uses up the tokens of others by asking often.
//! Always   Who is refused by the bucket, or goes away while waiting for it, gets the attempt back: it never reached the
//!          database.
//! Bound    Of all that enter, at most burst + rate · t reach the database in any time t since the first.

use std::time::Duration;

use tidegate::{Clock, Decision, Gate, Limiter, Rule, Span, SystemClock, Timestamp};

use crate::answer::Answer;

/// How long a buyer waits for a token, as in the seed of this example: `tryAcquire(1000, MILLISECONDS)`. A token that
/// would come later is refused at once.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// The two limits.
pub struct Entrance<C: Clock = SystemClock> {
    buyers: Limiter<C>,
    tokens: Gate<C>,
}

/// What the two limits are.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Of each buyer.
    pub per_buyer: Rule,
    /// Of all buyers together.
    pub rate: Rule,
}

impl Entrance {
    /// By the machine's clock.
    pub fn new(rules: Rules) -> Self {
        Self::with_clock(rules, SystemClock::new())
    }
}

impl<C: Clock + Clone> Entrance<C> {
    /// By another clock.
    pub fn with_clock(rules: Rules, clock: C) -> Self {
        Self {
            buyers: Limiter::with_clock(rules.per_buyer, clock.clone()),
            tokens: Gate::with_clock(rules.rate, clock),
        }
    }

    /// Waits for a token. The error is what to tell the buyer.
    ///
    /// A buyer who goes away while waiting (the future is dropped) gives the token back to those behind, and may come again.
    pub async fn enter(&self, buyer: i64) -> Result<(), Answer> {
        let decision = self.buyers.check(&buyer);
        if let Err(denied) = decision.into_result() {
            return Err(Answer::TooMany { retry_after_ms: retry_after_ms(denied.decision) });
        }
        let drained_at = self.buyers.clock().now() + decision.reset_after;
        let mut attempt = Attempt { buyers: &self.buyers, buyer, drained_at, is_used: false };
        match self.tokens.request().within(PATIENCE).acquire().await {
            Ok(_) => {
                attempt.is_used = true;
                Ok(())
            }
            Err(denied) => Err(Answer::Busy { retry_after_ms: retry_after_ms(denied.decision) }),
        }
    }
}

/// What a buyer's own limit was charged: given back unless it is used.
struct Attempt<'a, C: Clock> {
    buyers: &'a Limiter<C>,
    buyer: i64,
    /// From then on it is back by itself; to give it back again would be to give it twice.
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

/// Rounded up; a limit that never admits again has none to tell, and says a minute.
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
    async fn a_buyer_who_asks_again_is_refused_and_takes_no_token() {
        let clock = ManualClock::new();
        let entrance = entrance(&clock);
        assert_eq!(entrance.enter(1).await, Ok(()));
        let again = entrance.enter(1).await;
        assert_eq!(again, Err(Answer::TooMany { retry_after_ms: 10_000 }));
        clock.advance(Span::from_secs(1));
        assert_eq!(entrance.enter(2).await, Ok(()), "the token is still there");
    }

    #[tokio::test]
    async fn who_finds_no_token_within_a_second_is_refused_at_once_and_may_come_back() {
        let clock = ManualClock::new();
        let entrance = entrance(&clock);
        assert_eq!(entrance.enter(1).await, Ok(()));
        let mut second = Box::pin(entrance.enter(2));
        tokio::select! {
            biased;
            _ = &mut second => panic!("the token comes in a second"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(entrance.enter(3).await, Err(Answer::Busy { retry_after_ms: 1_000 }));
        clock.advance(Span::from_secs(1));
        assert_eq!(second.await, Ok(()));
        clock.advance(Span::from_secs(1));
        assert_eq!(entrance.enter(3).await, Ok(()), "the attempt was given back");
    }

    /// Enters and goes away while waiting for a token.
    fn give_up(entrance: &Entrance<ManualClock>, buyer: i64) {
        let mut gone = Box::pin(entrance.enter(buyer));
        let mut nobody = Context::from_waker(Waker::noop());
        assert!(gone.as_mut().poll(&mut nobody).is_pending(), "the token comes in a second");
    }

    #[tokio::test]
    async fn who_goes_away_while_waiting_gives_the_token_back() {
        let clock = ManualClock::new();
        let entrance = entrance(&clock);
        assert_eq!(entrance.enter(1).await, Ok(()));
        give_up(&entrance, 2);
        clock.advance(Span::from_secs(1));
        assert_eq!(entrance.enter(3).await, Ok(()));
    }

    #[tokio::test]
    async fn who_goes_away_while_waiting_may_come_again() {
        let clock = ManualClock::new();
        let entrance = entrance(&clock);
        assert_eq!(entrance.enter(1).await, Ok(()));
        give_up(&entrance, 2);
        clock.advance(Span::from_secs(1));
        assert_eq!(entrance.enter(2).await, Ok(()), "the attempt was given back");
        assert_eq!(entrance.enter(2).await, Err(Answer::TooMany { retry_after_ms: 10_000 }));
    }
}
