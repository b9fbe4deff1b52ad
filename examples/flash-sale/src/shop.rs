//! The shop: limits before a database.

use tidegate::{Clock, SystemClock};

use crate::database::{self, Database};
use crate::entrance::Entrance;
use crate::reply::SaleReply;
use crate::way::Way;

/// `retry_after_ms` of an attempt that passed the limits, but got no answer from the database in time.
const DATABASE_RETRY_MS: u64 = 5_000;

/// Whether buyers pass the limits first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Without limits.
    Open,
    /// Through the limits of [`Entrance`].
    Guarded,
}

impl Access {
    /// Without limits, then with limits.
    pub const BOTH: [Self; 2] = [Self::Open, Self::Guarded];
}

/// A database with a stock, and limits before it.
pub struct Shop<C: Clock = SystemClock> {
    /// The stock and the orders.
    pub database: Database,
    /// The limits.
    pub entrance: Entrance<C>,
}

impl<C: Clock + Clone> Shop<C> {
    /// Attempts to buy one. An error means that the database is broken, not that the attempt was denied.
    pub async fn buy(&self, access: Access, way: Way, buyer: i64) -> sqlx::Result<SaleReply> {
        if access == Access::Guarded
            && let Err(refused) = self.entrance.enter(buyer).await
        {
            return Ok(refused);
        }
        match self.database.sell(way, buyer).await {
            Err(error) if database::is_busy(&error) => {
                Ok(SaleReply::Busy { retry_after_ms: DATABASE_RETRY_MS })
            }
            answer => answer,
        }
    }
}
