//! Thousands of buyers who all ask at the same moment.
//!
//! Always   Everybody is there, and connected, before the first one asks.
//! Always   A latency counts from the moment at which all ask, not from when the machine gets round to it.

use anyhow::Context as _;
use indicatif::ProgressBar;
use tidegate::{Clock as _, SystemClock, Timestamp};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::counter::{Buyer, Counter};
use super::outcome::Answers;
use crate::shop::Door;
use crate::visitor;
use crate::way::Way;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// How many attempts there are.
    pub buyers: u32,
    /// Of ten of them, how many are by somebody who has made one already.
    pub again_of_ten: u32,
}

impl Crowd {
    /// Everybody asks once, at the same moment; returns when everybody has been answered.
    pub(super) async fn rush(
        self,
        counter: &Counter,
        (way, door): (Way, Door),
        bar: &ProgressBar,
    ) -> anyhow::Result<Answers> {
        let clock = SystemClock::new();
        let (open, opening) = watch::channel(None::<Timestamp>);
        let mut tasks = JoinSet::new();
        for (number, mut buyer) in (0..).zip(self.arrive(counter).await?) {
            let (who, mut opening, clock) = (self.who(number), opening.clone(), clock.clone());
            tasks.spawn(async move {
                let opened = opening.wait_for(Option::is_some).await.ok().and_then(|at| *at);
                let opened = opened.context("the sale was called off")?;
                let answer = buyer.buy(door, way, who).await?;
                Ok::<_, anyhow::Error>((answer, clock.now().since(opened)))
            });
        }
        let opened = clock.now();
        open.send_replace(Some(opened));
        let mut answers = Answers::new()?;
        while let Some(ended) = tasks.join_next().await {
            let (answer, took) = ended.context("a buyer panicked")??;
            answers.add(answer, took);
            bar.inc(1);
        }
        answers.took = clock.now().since(opened);
        Ok(answers)
    }

    async fn arrive(self, counter: &Counter) -> anyhow::Result<Vec<Buyer>> {
        if counter.is_http() {
            visitor::make_room_for(self.buyers)?;
        }
        let mut buyers = Vec::new();
        for _ in 0..self.buyers {
            buyers.push(counter.arrive().await?);
        }
        Ok(buyers)
    }

    /// The last of every ten attempts are by the one who made the first of these ten.
    fn who(self, attempt: u32) -> i64 {
        let (ten, place) = (attempt / 10, attempt % 10);
        i64::from(if place < 10 - self.again_of_ten { attempt } else { ten * 10 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn of_ten_attempts_so_many_are_by_somebody_who_was_here() {
        for (again_of_ten, people) in [(0, 100), (1, 90), (9, 10)] {
            let crowd = Crowd { buyers: 100, again_of_ten };
            let who: HashSet<i64> = (0..100).map(|attempt| crowd.who(attempt)).collect();
            assert_eq!(who.len(), people);
        }
    }
}
