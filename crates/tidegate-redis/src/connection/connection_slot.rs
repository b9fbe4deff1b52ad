//! A connection that may be gone, and may be another one a moment later.

use redis::aio::MultiplexedConnection;
use std::fmt;
use std::sync::Mutex;

/// A place for a connection. Callers share it: what they send at the same time goes out together.
#[derive(Default)]
pub(super) struct Lane {
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    connection: Option<MultiplexedConnection>,
    /// How many there have been.
    number: u64,
}

/// A connection, and which one it is.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) one: MultiplexedConnection,
    pub(super) number: u64,
}

impl Lane {
    pub(super) fn connection(&self) -> Option<(&Self, Connection)> {
        let held = self.held.lock().expect("nobody panics with it");
        let one = held.connection.clone()?;
        Some((self, Connection { one, number: held.number }))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.held.lock().expect("nobody panics with it").connection.is_some()
    }

    pub(super) fn put(&self, connection: MultiplexedConnection) {
        let mut held = self.held.lock().expect("nobody panics with it");
        held.number += 1;
        held.connection = Some(connection);
    }

    /// Gives up this connection, if there is not another one already.
    pub(super) fn lose(&self, number: u64) {
        let mut held = self.held.lock().expect("nobody panics with it");
        if held.number == number {
            held.connection = None;
        }
    }

    pub(super) fn close(&self) {
        self.held.lock().expect("nobody panics with it").connection = None;
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("is_connected", &self.is_connected()).finish_non_exhaustive()
    }
}
