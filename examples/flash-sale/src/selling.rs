//! The statements of the five ways.
//!
//! Always   The stock and the order change in one transaction, which is committed before the buyer gets the reply "sold".
//! Always   Only the naive way writes a value computed from a read that may be outdated.
//! SQLite   It has no `FOR UPDATE`, and one writer at a time. `BEGIN IMMEDIATE` takes the only write lock at once: a
//!          transaction that begins with a read and writes later fails if another connection wrote in between. So the
//!          ways that read first do so outside of the transaction.

use std::future::Future;

use sqlx::{Any, AnyConnection, Connection as _, Row as _, Transaction};

use crate::reply::SaleReply;
use crate::way::Way;

/// The item that is sold. The tables could hold more.
pub(crate) const ITEM: i64 = 1;

/// The SQL dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite, in this process.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

impl Dialect {
    const fn begin(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN IMMEDIATE",
            Self::Postgres => "BEGIN",
        }
    }

    const fn read_and_lock(self) -> &'static str {
        match self {
            // The lock is taken by `BEGIN IMMEDIATE`.
            Self::Sqlite => READ,
            Self::Postgres => READ_FOR_UPDATE,
        }
    }
}

const READ: &str = "SELECT count, sale, version FROM flash_sale_stock WHERE id = $1";
const READ_FOR_UPDATE: &str =
    "SELECT count, sale, version FROM flash_sale_stock WHERE id = $1 FOR UPDATE";
const WRITE_AS_READ: &str = "UPDATE flash_sale_stock SET sale = $2 WHERE id = $1";
const WRITE_IF_SAME_SALE: &str =
    "UPDATE flash_sale_stock SET sale = sale + 1 WHERE id = $1 AND sale = $2";
const WRITE_IF_SAME_VERSION: &str = "UPDATE flash_sale_stock SET sale = sale + 1, version = version + 1 \
     WHERE id = $1 AND version = $2";
const WRITE_IF_LEFT: &str = "UPDATE flash_sale_stock SET sale = sale + 1 WHERE id = $1 AND sale < count \
     RETURNING count - sale AS remaining";
const WRITE_UNDER_LOCK: &str = "UPDATE flash_sale_stock SET sale = sale + 1 WHERE id = $1";
const ORDER: &str = "INSERT INTO flash_sale_orders (item, buyer) VALUES ($1, $2) RETURNING id";

/// Sells one to `buyer`, or returns why not.
///
/// `after_read` is awaited between the read and the write of the ways that read without a lock, so that a test can let other
/// buyers read at that moment.
pub async fn sell(
    connection: &mut AnyConnection,
    dialect: Dialect,
    way: Way,
    buyer: i64,
    after_read: impl Future<Output = ()>,
) -> sqlx::Result<SaleReply> {
    match way {
        Way::Condition => return if_left(connection, dialect, buyer).await,
        Way::ForUpdate => return under_lock(connection, dialect, buyer).await,
        Way::Naive | Way::OldValue | Way::Version => {}
    }
    let stock = read(connection, READ).await?;
    if stock.is_sold_out() {
        return Ok(SaleReply::SoldOut);
    }
    after_read.await;
    let mut transaction = connection.begin_with(dialect.begin()).await?;
    let (statement, value) = match way {
        Way::Naive => (WRITE_AS_READ, stock.sale + 1),
        // `sale` only grows, so the value that was read cannot return: no ABA problem, and no version needed.
        Way::OldValue => (WRITE_IF_SAME_SALE, stock.sale),
        _ => (WRITE_IF_SAME_VERSION, stock.version),
    };
    let query = sqlx::query(statement).bind(ITEM).bind(value);
    if query.execute(&mut *transaction).await?.rows_affected() == 0 {
        transaction.rollback().await?;
        return Ok(SaleReply::Conflict);
    }
    finish(transaction, buyer, stock.left() - 1).await
}

async fn if_left(
    connection: &mut AnyConnection,
    dialect: Dialect,
    buyer: i64,
) -> sqlx::Result<SaleReply> {
    let mut transaction = connection.begin_with(dialect.begin()).await?;
    let query = sqlx::query(WRITE_IF_LEFT).bind(ITEM);
    let Some(row) = query.fetch_optional(&mut *transaction).await? else {
        transaction.rollback().await?;
        return Ok(SaleReply::SoldOut);
    };
    let left = row.try_get("remaining")?;
    finish(transaction, buyer, left).await
}

async fn under_lock(
    connection: &mut AnyConnection,
    dialect: Dialect,
    buyer: i64,
) -> sqlx::Result<SaleReply> {
    let mut transaction = connection.begin_with(dialect.begin()).await?;
    let stock = read(&mut transaction, dialect.read_and_lock()).await?;
    if stock.is_sold_out() {
        transaction.rollback().await?;
        return Ok(SaleReply::SoldOut);
    }
    sqlx::query(WRITE_UNDER_LOCK).bind(ITEM).execute(&mut *transaction).await?;
    finish(transaction, buyer, stock.left() - 1).await
}

/// Writes the order, and commits.
async fn finish(
    mut transaction: Transaction<'_, Any>,
    buyer: i64,
    left: i64,
) -> sqlx::Result<SaleReply> {
    let query = sqlx::query(ORDER).bind(ITEM).bind(buyer);
    let order = query.fetch_one(&mut *transaction).await?.try_get("id")?;
    transaction.commit().await?;
    Ok(SaleReply::Sold { order, left })
}

struct Stock {
    count: i64,
    sale: i64,
    version: i64,
}

impl Stock {
    fn is_sold_out(&self) -> bool {
        self.sale >= self.count
    }

    fn left(&self) -> i64 {
        self.count - self.sale
    }
}

async fn read(connection: &mut AnyConnection, statement: &'static str) -> sqlx::Result<Stock> {
    let row = sqlx::query(statement).bind(ITEM).fetch_one(connection).await?;
    Ok(Stock {
        count: row.try_get("count")?,
        sale: row.try_get("sale")?,
        version: row.try_get("version")?,
    })
}
