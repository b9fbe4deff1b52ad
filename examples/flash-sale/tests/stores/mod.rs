//! The two databases that the tests run against.

use flash_sale::Database;
use tempfile::TempDir;
use tidegate_testbed::PostgresServer;

/// Number of connections that the service opens to PostgreSQL.
pub(crate) const CONNECTIONS: u32 = 16;

/// A temporary database, removed on drop.
pub(crate) enum Store {
    Sqlite(TempDir),
    Postgres(Box<PostgresServer>),
}

impl Store {
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    pub(crate) fn postgres() -> Self {
        Self::Postgres(Box::new(PostgresServer::start()))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(directory) => {
                format!("sqlite://{}", directory.path().join("sale.db").display())
            }
            Self::Postgres(server) => server.url(),
        }
    }

    pub(crate) async fn open(&self) -> Database {
        Database::open(&self.url(), CONNECTIONS).await.unwrap()
    }
}
