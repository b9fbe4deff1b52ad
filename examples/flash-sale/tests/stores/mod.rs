//! The two databases that every claim is held against.

use flash_sale::Database;
use tempfile::TempDir;
use tidegate_testbed::PostgresServer;

/// As many as the service has for PostgreSQL.
pub(crate) const CONNECTIONS: u32 = 16;

/// A database of its own, gone with the value.
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
