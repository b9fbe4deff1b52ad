//! Thousands of buyers that start at the same moment.
//!
//! Always   All buyers are connected before the first one tries to buy.
//! Always   Latencies count from the common start, also for tasks that are scheduled later.

use anyhow::Context as _;
use indicatif::ProgressBar;
use tidegate::{Clock as _, SystemClock, Timestamp};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::counter::{Buyer, Counter};
use super::result::ReplyStats;
use crate::http_buyer;
use crate::shop::Access;
use crate::way::Way;

/// The simulated buyers.
#[derive(Clone, Copy, Debug)]
pub struct BuyerGroup {
    /// The number of attempts.
    pub buyers: u32,
    /// How many of ten attempts are repeated attempts of the same buyer.
    pub again_of_ten: u32,
}

impl BuyerGroup {
    /// Makes all attempts at the same moment; returns when each has its reply.
    pub(super) async fn rush(
        self,
        counter: &Counter,
        (way, access): (Way, Access),
        bar: &ProgressBar,
    ) -> anyhow::Result<ReplyStats> {
        let clock = SystemClock::new();
        let (open, opening) = watch::channel(None::<Timestamp>);
        let mut tasks = JoinSet::new();
        for (number, mut buyer) in (0..).zip(self.arrive(counter).await?) {
            let (id, mut opening, clock) = (self.buyer_of(number), opening.clone(), clock.clone());
            tasks.spawn(async move {
                let opened = opening.wait_for(Option::is_some).await.ok().and_then(|at| *at);
                let opened = opened.context("the sale was called off")?;
                let answer = buyer.buy(access, way, id).await?;
                Ok::<_, anyhow::Error>((answer, clock.now().since(opened)))
            });
        }
        let opened = clock.now();
        open.send_replace(Some(opened));
        let mut answers = ReplyStats::new()?;
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
            http_buyer::raise_descriptor_limit(self.buyers)?;
        }
        let mut buyers = Vec::new();
        for _ in 0..self.buyers {
            buyers.push(counter.arrive().await?);
        }
        Ok(buyers)
    }

    /// Returns the buyer of an attempt. The last of every ten attempts are by the buyer of the first of these ten.
    fn buyer_of(self, attempt: u32) -> i64 {
        let (ten, index) = (attempt / 10, attempt % 10);
        i64::from(if index < 10 - self.again_of_ten { attempt } else { ten * 10 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn repeated_attempts_are_by_the_same_buyer() {
        for (again_of_ten, people) in [(0, 100), (1, 90), (9, 10)] {
            let group = BuyerGroup { buyers: 100, again_of_ten };
            let buyers: HashSet<i64> = (0..100).map(|attempt| group.buyer_of(attempt)).collect();
            assert_eq!(buyers.len(), people);
        }
    }
}
