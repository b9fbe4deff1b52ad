//! The database that the stock is in: SQLite in a file, or PostgreSQL.
//!
//! Always   Every statement goes through the pool, which counts the attempts that reach it ([`Database::visits`]). So the
//!          effect of the limits is measured at the database.
//! Bound    At most `connections` work at the same time; further ones wait, for up to [`WAIT_MAX`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use sqlx::any::{AnyPoolOptions, install_default_drivers};
use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyConnection, AnyPool, Connection as _, Executor as _, Row as _};

use crate::reply::SaleReply;
use crate::selling::{self, Dialect, ITEM};
use crate::way::Way;

/// Maximum wait for a connection or for SQLite's write lock. After that the reply is "busy".
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// Readers continue during a write; writers wait for the lock.
const SQLITE_CONNECTION: &str = "PRAGMA journal_mode = WAL; PRAGMA busy_timeout = 30000";

const SQLITE_TABLES: &str = "
CREATE TABLE IF NOT EXISTS flash_sale_stock
    (id INTEGER PRIMARY KEY, count INTEGER NOT NULL, sale INTEGER NOT NULL, version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS flash_sale_orders
    (id INTEGER PRIMARY KEY, item INTEGER NOT NULL REFERENCES flash_sale_stock, buyer INTEGER NOT NULL)";
const POSTGRES_TABLES: &str = "
CREATE TABLE IF NOT EXISTS flash_sale_stock
    (id BIGINT PRIMARY KEY, count BIGINT NOT NULL, sale BIGINT NOT NULL, version BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS flash_sale_orders
    (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item BIGINT NOT NULL, buyer BIGINT NOT NULL)";

/// One statement, so that both numbers are consistent.
const TALLY: &str = "SELECT stock.count, stock.sale, \
     (SELECT COUNT(*) FROM flash_sale_orders WHERE item = stock.id) AS orders \
     FROM flash_sale_stock AS stock WHERE stock.id = $1";

/// A stock and its orders, and the connections to them.
pub struct Database {
    pool: AnyPool,
    dialect: Dialect,
    visits: Arc<AtomicU64>,
}

/// The state of the sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Tally {
    /// The initial stock.
    pub count: i64,
    /// The number sold, by the counter that every way changes.
    pub sale: i64,
    /// The number sold, by the orders: the parcels that have to be sent.
    pub orders: i64,
}

impl Tally {
    /// Returns the number of orders beyond the stock.
    pub fn oversold(self) -> i64 {
        (self.orders - self.count).max(0)
    }
}

impl Database {
    /// Opens it and makes the tables if they are not there. `url` begins with `sqlite:` or `postgres:`.
    pub async fn open(url: &str, connections: u32) -> anyhow::Result<Self> {
        install_default_drivers();
        let (dialect, url) = match url.split_once(':') {
            Some(("sqlite", _)) => (Dialect::Sqlite, created_if_absent(url)),
            Some(("postgres" | "postgresql", _)) => (Dialect::Postgres, url.to_owned()),
            _ => bail!(
                "{:?} is not a database: write sqlite://FILE or postgres://USER@HOST:PORT/NAME",
                without_password(url)
            ),
        };
        let tables = match dialect {
            Dialect::Sqlite => SQLITE_TABLES,
            Dialect::Postgres => POSTGRES_TABLES,
        };
        // Without the pool, which would retry for as long as a buyer waits.
        let connection = AnyConnection::connect(&url).await;
        let mut connection =
            connection.with_context(|| format!("cannot open {}", without_password(&url)))?;
        connection.execute(tables).await.context("cannot make the tables")?;
        connection.close().await?;
        let visits = Arc::new(AtomicU64::new(0));
        let options =
            counted(dialect, &visits).max_connections(connections).acquire_timeout(WAIT_MAX);
        let pool = options.connect_lazy(&url)?;
        Ok(Self { pool, dialect, visits })
    }

    /// Returns which of the two databases it is.
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Starts a sale of `count`, unless there is one already: a restarted service continues it.
    pub async fn put_on_sale(&self, count: u32) -> sqlx::Result<()> {
        let statement = "INSERT INTO flash_sale_stock (id, count, sale, version) VALUES ($1, $2, 0, 0) \
                         ON CONFLICT (id) DO NOTHING";
        sqlx::query(statement).bind(ITEM).bind(i64::from(count)).execute(&self.pool).await?;
        Ok(())
    }

    /// Starts a new sale of `count`, and deletes the orders of the old one.
    pub async fn restock(&self, count: u32) -> sqlx::Result<()> {
        let mut transaction = self.pool.begin().await?;
        transaction.execute("DELETE FROM flash_sale_orders").await?;
        transaction.execute("DELETE FROM flash_sale_stock").await?;
        transaction.commit().await?;
        self.put_on_sale(count).await
    }

    /// Sells one to `buyer`, or returns why not.
    pub async fn sell(&self, way: Way, buyer: i64) -> sqlx::Result<SaleReply> {
        let mut connection = self.connection().await?;
        selling::sell(&mut connection, self.dialect, way, buyer, std::future::ready(())).await
    }

    /// Takes a connection from the pool.
    pub async fn connection(&self) -> sqlx::Result<PoolConnection<Any>> {
        self.pool.acquire().await
    }

    /// Returns the state of the sale.
    pub async fn tally(&self) -> sqlx::Result<Tally> {
        let row = sqlx::query(TALLY).bind(ITEM).fetch_one(&self.pool).await?;
        Ok(Tally {
            count: row.try_get("count")?,
            sale: row.try_get("sale")?,
            orders: row.try_get("orders")?,
        })
    }

    /// Returns how often a connection was taken: once for each attempt to buy that reached the database.
    pub fn visits(&self) -> u64 {
        self.visits.load(Ordering::SeqCst)
    }

    /// Waits for statements in progress, and closes every connection.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// Returns a pool that counts how often a connection is taken, idle or new.
fn counted(dialect: Dialect, visits: &Arc<AtomicU64>) -> AnyPoolOptions {
    let (made, taken) = (Arc::clone(visits), Arc::clone(visits));
    AnyPoolOptions::new()
        .after_connect(move |connection, _| {
            made.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move {
                if dialect == Dialect::Sqlite {
                    connection.execute(SQLITE_CONNECTION).await?;
                }
                Ok(())
            })
        })
        .before_acquire(move |_, _| {
            taken.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { Ok(true) })
        })
}

/// Adds the option that makes SQLite create a missing file.
fn created_if_absent(url: &str) -> String {
    match url {
        url if url.contains("mode=") => url.to_owned(),
        url if url.contains('?') => format!("{url}&mode=rwc"),
        url => format!("{url}?mode=rwc"),
    }
}

/// Returns the URL without its password.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    match rest.rsplit_once('@').map(|(user, host)| (user.split_once(':'), host)) {
        Some((Some((user, _)), host)) => format!("{scheme}://{user}:***@{host}"),
        _ => url.to_owned(),
    }
}

/// Returns whether the database is overloaded, as opposed to broken.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::PoolTimedOut => true,
        // SQLITE_BUSY, and its extended codes.
        sqlx::Error::Database(error) => {
            error.message().contains("database is locked") || error.code().as_deref() == Some("5")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_created_unless_the_url_says_otherwise() {
        assert_eq!(created_if_absent("sqlite:a.db"), "sqlite:a.db?mode=rwc");
        assert_eq!(
            created_if_absent("sqlite:a.db?cache=private"),
            "sqlite:a.db?cache=private&mode=rwc"
        );
        assert_eq!(created_if_absent("sqlite:a.db?mode=ro"), "sqlite:a.db?mode=ro");
    }

    #[test]
    fn a_password_is_not_shown() {
        assert_eq!(without_password("postgres://me:secret@host/db"), "postgres://me:***@host/db");
        assert_eq!(without_password("postgres://me@host/db"), "postgres://me@host/db");
        assert_eq!(without_password("sqlite://a.db"), "sqlite://a.db");
    }

    #[tokio::test]
    async fn an_invalid_url_gets_an_example() {
        let error = Database::open("mysql://localhost", 1).await.err().unwrap();
        assert!(error.to_string().contains("sqlite://FILE or postgres://"), "{error}");
    }
}
