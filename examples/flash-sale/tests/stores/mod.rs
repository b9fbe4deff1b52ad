//! The two databases that every test runs on.

use flash_sale::Database;
use tempfile::TempDir;
use tidegate_testbed::PostgresServer;

/// The service's default for PostgreSQL.
pub(crate) const CONNECTIONS: u32 = 16;

/// An empty database, deleted when this is dropped.
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
