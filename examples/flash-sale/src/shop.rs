//! The shop: an entrance before a database.

use tidegate::{Clock, SystemClock};

use crate::answer::Answer;
use crate::database::{self, Database};
use crate::entrance::Entrance;
use crate::way::Way;

/// What a buyer is told who was let in and whom the database kept waiting in vain.
const DATABASE_RETRY_MS: u64 = 5_000;

/// Whether a buyer passes the limits first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Straight to the database.
    Open,
    /// Through the [`Entrance`].
    Guarded,
}

impl Door {
    /// First without, then with limits.
    pub const BOTH: [Self; 2] = [Self::Open, Self::Guarded];
}

/// Where things are sold.
pub struct Shop<C: Clock = SystemClock> {
    /// The stock and the orders.
    pub database: Database,
    /// The limits.
    pub entrance: Entrance<C>,
}

impl<C: Clock + Clone> Shop<C> {
    /// One attempt to buy. An error means that the database is broken, not that it said no.
    pub async fn buy(&self, door: Door, way: Way, buyer: i64) -> sqlx::Result<Answer> {
        if door == Door::Guarded
            && let Err(refused) = self.entrance.enter(buyer).await
        {
            return Ok(refused);
        }
        match self.database.sell(way, buyer).await {
            Err(error) if database::is_busy(&error) => {
                Ok(Answer::Busy { retry_after_ms: DATABASE_RETRY_MS })
            }
            answer => answer,
        }
    }
}
