//! The statements of the five ways.
//!
//! Always   The stock and the order change in one transaction, which is committed before the buyer is told "sold".
//! Always   No way but the naive one writes what it has worked out from a read that others may have overtaken.
//! SQLite   It has no `FOR UPDATE`, and one writer at a time. `BEGIN IMMEDIATE` takes the only write lock at once: a
//!          transaction that begins with a read and turns to writing later is refused if anybody wrote in between. For
//!          that reason the ways that read first do so outside of the transaction.

use std::future::Future;

use sqlx::{Any, AnyConnection, Connection as _, Row as _, Transaction};

use crate::answer::Answer;
use crate::way::Way;

/// What is sold. The tables could hold more.
pub(crate) const ITEM: i64 = 1;

/// Which of the two databases it is, where they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// In a file, in this process.
    Sqlite,
    /// A server.
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

/// Sells one to `buyer`, or says why not.
///
/// `after_read` is awaited between the read and the write of the ways that read without a lock. It is where others get
/// in between; a test makes sure that they do.
pub async fn sell(
    connection: &mut AnyConnection,
    dialect: Dialect,
    way: Way,
    buyer: i64,
    after_read: impl Future<Output = ()>,
) -> sqlx::Result<Answer> {
    match way {
        Way::Condition => return if_left(connection, dialect, buyer).await,
        Way::ForUpdate => return under_lock(connection, dialect, buyer).await,
        Way::Naive | Way::OldValue | Way::Version => {}
    }
    let stock = read(connection, READ).await?;
    if stock.is_sold_out() {
        return Ok(Answer::SoldOut);
    }
    after_read.await;
    let mut transaction = connection.begin_with(dialect.begin()).await?;
    let (statement, value) = match way {
        Way::Naive => (WRITE_AS_READ, stock.sale + 1),
        // `sale` only grows, so nobody can put back the value that was read: no ABA, and no version needed.
        Way::OldValue => (WRITE_IF_SAME_SALE, stock.sale),
        _ => (WRITE_IF_SAME_VERSION, stock.version),
    };
    let query = sqlx::query(statement).bind(ITEM).bind(value);
    if query.execute(&mut *transaction).await?.rows_affected() == 0 {
        transaction.rollback().await?;
        return Ok(Answer::Conflict);
    }
    finish(transaction, buyer, stock.left() - 1).await
}

async fn if_left(
    connection: &mut AnyConnection,
    dialect: Dialect,
    buyer: i64,
) -> sqlx::Result<Answer> {
    let mut transaction = connection.begin_with(dialect.begin()).await?;
    let query = sqlx::query(WRITE_IF_LEFT).bind(ITEM);
    let Some(row) = query.fetch_optional(&mut *transaction).await? else {
        transaction.rollback().await?;
        return Ok(Answer::SoldOut);
    };
    let left = row.try_get("remaining")?;
    finish(transaction, buyer, left).await
}

async fn under_lock(
    connection: &mut AnyConnection,
    dialect: Dialect,
    buyer: i64,
) -> sqlx::Result<Answer> {
    let mut transaction = connection.begin_with(dialect.begin()).await?;
    let stock = read(&mut transaction, dialect.read_and_lock()).await?;
    if stock.is_sold_out() {
        transaction.rollback().await?;
        return Ok(Answer::SoldOut);
    }
    sqlx::query(WRITE_UNDER_LOCK).bind(ITEM).execute(&mut *transaction).await?;
    finish(transaction, buyer, stock.left() - 1).await
}

/// Writes the order, and only then does anything of it count.
async fn finish(
    mut transaction: Transaction<'_, Any>,
    buyer: i64,
    left: i64,
) -> sqlx::Result<Answer> {
    let query = sqlx::query(ORDER).bind(ITEM).bind(buyer);
    let order = query.fetch_one(&mut *transaction).await?.try_get("id")?;
    transaction.commit().await?;
    Ok(Answer::Sold { order, left })
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
